from torch import Tensor


def masked(logits: Tensor, mask: Tensor) -> Tensor:  # 1 allows an option, 0 forbids it: its logit becomes -1e8
    return logits * mask - 1e8 * (mask * -1.0 + 1.0)
