import torch
from torch import Tensor


def draw(p: Tensor, u: Tensor | None = None) -> Tensor:  # the option among whose share u falls, uniform in [0, 1)
    if torch.onnx.is_in_onnx_export():
        return torch.multinomial(p, 1)
    u = torch.rand(p.shape[0], 1).to(p.device) if u is None else u
    ends = p.cumsum(1)
    return (ends <= u * ends[:, -1:]).sum(1, keepdim=True)
