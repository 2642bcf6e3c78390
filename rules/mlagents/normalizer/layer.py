import torch
from torch import Tensor, nn


class Normalizer(nn.Module):  # clips (x - mean) / std to ±5
    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(size))
        self.register_buffer("running_variance", torch.ones(size))  # a sum over the steps
        self.register_buffer("normalization_steps", torch.tensor(1))
        self.register_buffer("std", torch.ones(size))  # sqrt(running_variance / normalization_steps), as it was exported

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp((x - self.running_mean) / self.std, -5, 5)
