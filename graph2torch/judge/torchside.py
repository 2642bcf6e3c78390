"""The torch module's side of a comparison: inputs and noise in, outputs and inner values out, as numpy arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from graph2torch.emit import emit_inner
from graph2torch.errors import DeviceError, FolderError
from graph2torch.graph import Array
from graph2torch.spec import PolicySpec
from graph2torch.text import one_line

if TYPE_CHECKING:
    import torch


class TorchSide:
    """A policy's module, run for the judge on one device.

    module:  the emitted Policy, in evaluation mode, on that device
    device:  as torch calls it; what fails elsewhere than on the CPU, or isn't computed there, is a DeviceError
    changed: model.py may have been changed since it was written, so that any error can come of running it: a FolderError then
    """

    def __init__(self, module: torch.nn.Module, spec: PolicySpec, device: str = "cpu", changed: bool = False) -> None:
        self.module, self.spec, self.device, self.changed = module, spec, device, changed
        self.globals: dict[str, Any] = module.forward.__globals__  # those of model.py
        self.functions: dict[tuple[str, ...], Any] = {}
        self.other_layers = ""  # why inner values can't be had, where a changed model.py has other layers

    def outputs(self, feed: Mapping[str, Array], noise: Mapping[str, Array] | None = None) -> list[Array]:
        """The policy's outputs in the graph's order.

        feed:  an array for each input; noise: for each value that is drawn, by the graph's name. Without, the module draws itself.
        """
        options: dict[str, Any] = {} if noise is None or not self.spec.noise else {"noise": self._noise(noise)}
        return self._arrays(lambda: self.module(*self._arguments(feed), **options))

    def inner(self, values: Sequence[str], feed: Mapping[str, Array], noise: Mapping[str, Array] | None = None) -> list[Array]:
        """Inner `values` of the graph as the module's layers compute them."""
        key = tuple(values)
        if key not in self.functions:
            namespace = dict(self.globals)
            exec(compile(emit_inner(self.spec, values), "inner", "exec"), namespace)
            self.functions[key] = namespace["inner"]
        given = None if noise is None or not self.spec.noise else self._noise(noise)
        return self._arrays(lambda: self.functions[key](self.module, *self._arguments(feed), noise=given))

    def acted(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """What `policy.act` gives, by the name of the output that gives the same; what the graph has no such output for is left out."""
        acting, named = self.spec.acting.deterministic, {o.field: o.name for o in self.spec.outputs}
        if not acting:
            return {}
        memory = next((i.next for i in self.spec.inputs if i.kind == "memory"), "")
        outputs = [memory if name == "memory" else named.get(f"deterministic_{name}", "") for name in acting]

        def run() -> Iterable[torch.Tensor]:
            found = cast(Any, self.module).act(*self._arguments(feed))
            return found if isinstance(found, tuple) else (found,)

        return {output: array for output, array in zip(outputs, self._arrays(run), strict=False) if output}

    def _arguments(self, feed: Mapping[str, Array]) -> list[torch.Tensor]:
        import torch

        return [torch.from_numpy(np.array(feed[i.name])).to(self.device) for i in self.spec.inputs]

    def _noise(self, noise: Mapping[str, Array]) -> Any:
        import torch

        return self.globals["Noise"](*(torch.from_numpy(np.array(noise[value])).to(self.device) for value in self.spec.noise.values()))

    def _tensors(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        return list(tensors)

    def _arrays(self, run: Callable[[], Iterable[torch.Tensor]]) -> list[Array]:
        import torch

        try:
            with torch.inference_mode():
                tensors = self._tensors(run())
                arrays = [tensor.detach().cpu().numpy() for tensor in tensors]
        except Exception as error:
            if self.device != "cpu":
                raise cannot(self.device, "run this policy", error) from None
            if not self.changed or isinstance(error, MemoryError):
                raise
            raise FolderError(
                f"model.py can't be run as build wrote it ({type(error).__name__}: {one_line(str(error), 160)}); build the folder again."
            ) from error
        for tensor in tensors:
            if tensor.device.type != self.device.partition(":")[0]:
                raise DeviceError(f"What the policy gives on {self.device} lies on {tensor.device}: part of it was computed there.")
        return arrays


def cannot(device: str, what: str, error: Exception) -> DeviceError:
    return DeviceError(
        f"The device {device} can't {what}: {one_line(f'{type(error).__name__}: {error}', 300)}. Nothing was computed on the CPU instead; "
        f"leave --device out, or report the policy."
    )
