import torch
from torch import Tensor, nn


class LSTM(nn.LSTM):  # one step of every agent; the memory is [1, agents, hidden state + cell state]
    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        state = memory[:, :, : self.hidden_size], memory[:, :, self.hidden_size :]
        y, state = super().forward(x.reshape(-1, 1, self.input_size), state)
        return y.reshape(-1, self.hidden_size), torch.cat(state, dim=-1)
