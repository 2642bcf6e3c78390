import torch
from torch import Tensor


def draw(p: Tensor, u: Tensor | None = None) -> Tensor:  # an option, by chance or where u, uniform in [0, 1), falls
    if u is not None:
        ends = p.cumsum(1)
        return (ends <= u * ends[:, -1:]).sum(1, keepdim=True)
    return torch.multinomial(p, 1) if p.is_cpu else torch.multinomial(p.cpu(), 1).to(p.device)
