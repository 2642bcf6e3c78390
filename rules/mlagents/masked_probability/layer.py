from torch import Tensor


def allowed(p: Tensor, mask: Tensor) -> Tensor:  # probabilities without the forbidden options, with a sum of 1 again
    p = p * mask
    return p / p.sum(-1).unsqueeze(1)
