import torch
from torch import Tensor, nn


class LSTM(nn.Module):  # one step of every agent; nn.LSTM's parameters
    def __init__(self, features: int, size: int) -> None:
        super().__init__()
        self.features, self.size = features, size
        self.weight_ih_l0 = nn.Parameter(torch.zeros(4 * size, features))
        self.weight_hh_l0 = nn.Parameter(torch.zeros(4 * size, size))
        self.bias_ih_l0 = nn.Parameter(torch.zeros(4 * size))
        self.bias_hh_l0 = nn.Parameter(torch.zeros(4 * size))

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        x = x.reshape(-1, 1, self.features)
        if memory.shape != (1, len(x), 2 * self.size):
            raise ValueError(f"the memory must be one row of {2 * self.size} numbers for each of {len(x)} agents")
        state = memory[:, :, : self.size], memory[:, :, self.size :]
        weights = self.weight_ih_l0, self.weight_hh_l0, self.bias_ih_l0, self.bias_hh_l0
        if torch.onnx.is_in_onnx_export():  # as one operator, which takes four times as long for one agent
            y, hidden, cell = torch.lstm(
                x, state, weights, has_biases=True, num_layers=1, dropout=0.0, train=False, bidirectional=False, batch_first=True
            )
            return y.reshape(-1, self.size), torch.cat([hidden, cell], dim=-1)
        hidden, cell = torch.lstm_cell(x[:, 0], (state[0][0], state[1][0]), *weights)
        return hidden, torch.cat([hidden, cell], dim=-1).unsqueeze(0)
