import torch
from torch import Tensor, nn


class LayerNorm(nn.Module):  # without parameters
    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5)


class HyperNetwork(nn.Module):  # a hidden layer whose weights another network makes from the goal
    def __init__(self, inputs: int, outputs: int, goal: int, hidden: int) -> None:
        super().__init__()
        self.shape = (-1, inputs, outputs)
        layers = [nn.Linear(goal, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU()]
        self.hypernet = nn.Sequential(*layers, LayerNorm(), nn.Linear(hidden, inputs * outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, goal: Tensor) -> Tensor:
        weight = self.hypernet(goal).reshape(self.shape)
        return nn.functional.silu((x.unsqueeze(1) @ weight).squeeze(1) + self.bias)
