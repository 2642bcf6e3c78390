import torch
from torch import Tensor, nn


class EntityEmbedding(nn.Module):  # one layer over each entity, with the agent itself beside it
    def __init__(self, x_self: int, entity: int, entities: int, size: int) -> None:
        super().__init__()
        self.shape, self.entities = (-1, 1, x_self), entities
        self.seq_layers = nn.Sequential(nn.Linear(x_self + entity, size), nn.SiLU())

    def forward(self, x_self: Tensor, entities: Tensor) -> Tensor:
        x_self = torch.cat([x_self.reshape(self.shape)] * self.entities, dim=1)
        return self.seq_layers(torch.cat([x_self, entities], dim=2))
