import torch
from torch import Tensor, nn


class LayerNorm(nn.Module):  # without parameters
    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(-1, keepdim=True)
        return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5)


class ResidualSelfAttention(nn.Module):  # entities attend to each other; the mean of those that are there
    def __init__(self, size: int, entities: int, heads: int) -> None:
        super().__init__()
        self.size, self.entities, self.heads = size, entities, heads
        self.fc_q, self.fc_k, self.fc_v, self.fc_out = (nn.Linear(size, size) for _ in range(4))
        self.embedding_norm, self.residual_norm = LayerNorm(), LayerNorm()

    def split(self, x: Tensor) -> Tensor:
        return x.reshape(-1, self.entities, self.heads, self.size // self.heads).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        x = self.embedding_norm(x)
        query, key, value = self.split(self.fc_q(x)), self.split(self.fc_k(x)), self.split(self.fc_v(x))
        hidden = padding.reshape(-1, 1, 1, self.entities)
        scores = (1 - hidden) * (query @ (key - 1 + 1).permute(0, 1, 3, 2)) / self.size**0.5 + hidden * max(-1e6, torch.finfo(x.dtype).min)
        attended = (torch.softmax(scores, dim=3) @ value).permute(0, 2, 1, 3).reshape(-1, self.entities, self.size)
        x = self.residual_norm(self.fc_out(attended) + x)
        there = 1 - padding
        return (x * there.reshape(-1, self.entities, 1)).sum(1) / (there.sum(1, keepdim=True) + 1e-7)
