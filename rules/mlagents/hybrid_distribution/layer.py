from torch import Tensor


class Hybrid:  # continuous: a distribution with mean and stddev; discrete: Branches
    def __init__(self, continuous, discrete):
        self.continuous, self.discrete = continuous, discrete

    def log_prob(self, continuous_actions: Tensor, discrete_actions: Tensor) -> Tensor:
        return self.continuous.log_prob(continuous_actions) + self.discrete.log_prob(discrete_actions)

    def entropy(self) -> Tensor:
        return self.continuous.entropy() + self.discrete.entropy()
