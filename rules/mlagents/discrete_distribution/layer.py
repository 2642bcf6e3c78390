import torch
from torch import Tensor


class Branches:  # one torch.distributions.Categorical (logits, probs) for each discrete branch
    def __init__(self, *logits: Tensor) -> None:
        self.branches = [torch.distributions.Categorical(logits=branch) for branch in logits]

    def log_prob(self, actions: Tensor) -> Tensor:  # of one option a branch, [batch, branches]
        return sum(branch.log_prob(actions[:, i]) for i, branch in enumerate(self.branches))

    def entropy(self) -> Tensor:
        return sum(branch.entropy() for branch in self.branches)
