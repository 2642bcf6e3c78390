import torch
from torch import Tensor, nn


class UnbiasedProduct(torch.autograd.Function):  # a product that exports as the one operator it was exported as before
    @staticmethod
    def forward(ctx, x, weight):
        return x @ weight.t()

    @staticmethod
    def symbolic(g, x, weight):
        return g.op("Gemm", x, weight, transB_i=1)


class LinearWithoutBias(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        traced = torch.onnx.is_in_onnx_export() and torch.jit.is_tracing()
        return UnbiasedProduct.apply(x, self.weight) if traced else super().forward(x)
