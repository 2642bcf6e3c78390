"""A policy with weights of half precision, against the same in float32 and against the original.

`load(dtype=…)` of model.py casts the layers' weights, or they were stored so (`build --dtype`); observations, the normaliser's
statistics and arithmetic, memory, noise and actions stay float32. Whether that is good enough depends on what the policy drives; the limits here are about actions in [−1, 1]:

    recommended  no output is off by more than 0.01 · max(1, largest output), no discrete action changed
    acceptable   by no more than 0.05, and 1 % of the discrete actions changed
    not advised  beyond that, or NaN or infinity where float32 is finite
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import onnx

from graph2torch.act.folder import Folder
from graph2torch.bind import bind
from graph2torch.errors import UnsupportedGraph
from graph2torch.graph import Array, Graph
from graph2torch.module import tensors_of
from graph2torch.spec import PolicySpec
from graph2torch.text import quoted

from .figures import Figures, Tally, finite, same_bits
from .isomorphism import Alignment
from .observations import Case
from .reference import Reference
from .torchside import TorchSide

if TYPE_CHECKING:
    import torch

Verdict = Literal["recommended", "acceptable", "not advised"]
RECOMMENDED, ACCEPTABLE = 0.01, 0.05  # of max(1, largest output)
CHANGED = 0.01  # share of discrete actions


@dataclass(frozen=True)
class PrecisionCheck:
    """How far a precision is from float32, by output that isn't fixed.

    changed:    discrete actions that became others than in float32, of `choices`
    not_finite: numbers that are NaN or infinite where float32's are finite
    overflow:   what would become of the normaliser's statistics if all was cast; "" if nothing would
    stored:     the precision that the weights are stored in
    rounded:    where that is half precision: how many stored tensors are the float32 network's rounded, to the bit; unlike: those that aren't
    """

    dtype: str
    against_float32: tuple[Figures, ...]
    against_original: tuple[Figures, ...]
    changed: int
    choices: int
    not_finite: int
    runs: int
    overflow: str
    stored: str = "float32"
    rounded: int | None = None
    unlike: tuple[str, ...] = ()

    @property
    def error(self) -> float:
        """The largest, as a share of max(1, largest output)."""
        return max((f.max_abs / max(1.0, f.reference_max) for f in self.against_float32), default=0.0)

    @property
    def verdict(self) -> Verdict:
        share = self.changed / max(self.choices, 1)
        if self.not_finite or self.error > ACCEPTABLE or share > CHANGED:
            return "not advised"
        return "recommended" if self.error <= RECOMMENDED and not self.changed else "acceptable"

    @property
    def good(self) -> bool:
        """Whether exit status 0 is due: good enough, and what is stored is what should be."""
        return self.verdict != "not advised" and not self.unlike

    def told(self) -> dict[str, Any]:
        """The facts for a report."""
        return {
            "dtype": self.dtype,
            "stored": self.stored,
            "rounded_tensors": self.rounded,
            "not_rounded_so": list(self.unlike),
            "verdict": self.verdict,
            "limits": {"recommended": RECOMMENDED, "acceptable": ACCEPTABLE, "changed": CHANGED},
            "error": finite({"error": self.error})["error"],
            "discrete_changed": self.changed,
            "discrete": self.choices,
            "not_finite": self.not_finite,
            "runs": self.runs,
            "against_float32": [finite(asdict(f)) for f in self.against_float32],
            "against_original": [finite(asdict(f)) for f in self.against_original],
            "if_all_was_cast": self.overflow,
        }


def check_precision(
    original: onnx.ModelProto, exact: TorchSide, half: TorchSide, dtype: str, spec: PolicySpec, cases: Iterable[Case], seed: int
) -> PrecisionCheck:
    """Runs all three on the ordinary cases and those of a file, on the same noise. UnsupportedGraph if the original runs none of them.

    exact, half: the policy's modules, with layers' weights in float32 and in `dtype`
    """
    judge = Reference(original, spec, seed)
    moving = {n: o.name for n, o in enumerate(spec.outputs) if o.constant is None}
    tallies, against = ({name: Tally(name) for name in moving.values()} for _ in range(2))
    changed = choices = lost = runs = 0
    for case in cases:
        if case.kind not in ("ordinary", "given") or case.carried:
            continue
        answer = judge.answer(case)
        if answer is None:
            continue
        reference, found = exact.outputs(case.feed, answer.by_value), half.outputs(case.feed, answer.by_value)
        for n, name in moving.items():
            a, b = reference[n], found[n]
            lost += int((np.isfinite(a) & ~np.isfinite(b)).sum()) if a.shape == b.shape else a.size
            if a.dtype.kind in "iub":
                choices += a.size
                changed += int((a != b).sum()) if a.shape == b.shape else a.size
            else:
                tallies[name].add(a, b)
                against[name].add(answer.outputs[n], b)
        runs += 1
    if not runs:
        raise UnsupportedGraph(
            f"Nothing could be compared in {dtype}: onnxruntime ran the original on none of the inputs tried. Nothing is called good enough "
            f"that was not looked at."
        )
    figures = [tuple(t.figures() for t in group.values() if t.compared) for group in (tallies, against)]
    return PrecisionCheck(dtype, figures[0], figures[1], changed, choices, lost, runs, overflow(half, dtype))


def overflow(side: TorchSide, dtype: str) -> str:
    """What the classic mistake would do, casting everything: the statistics that become infinite, and the deviations made of them."""
    import torch

    kind, buffers = getattr(torch, dtype), dict(side.module.named_buffers())
    lost, made, of = [], {"NaN": 0, "infinite": 0, "zero": 0}, 0
    for name in [name for name in buffers if name.rpartition(".")[2] == "running_variance"]:
        count = f"{name.removesuffix('running_variance')}normalization_steps"
        if count not in buffers:
            continue
        cast = []
        for path in (name, count):
            cast.append(buffers[path].cpu().to(kind).float())
            if bad := int(cast[-1].isinf().sum()):
                largest = float(buffers[path].cpu().double().max())
                lost.append(f"{bad} of {cast[-1].numel()} numbers of {quoted(path)}, up to {largest:.3g}")
        deviation = (cast[0] / cast[1]).sqrt()
        made["NaN"] += int(deviation.isnan().sum())
        made["infinite"] += int(deviation.isinf().sum())
        made["zero"] += int(((deviation == 0) & (buffers[name].cpu() > 0)).sum())
        of += deviation.numel()
    if not lost:
        return ""
    worth = " and ".join(f"{what} in {count}" for what, count in made.items() if count)
    return f"{' and '.join(lost)} would be infinite in {dtype}, and so the deviation made of them {worth} of {of} features"


class Half(TorchSide):
    """The side of a module with weights of half precision: what it gives in half precision, which numpy may not have, as float32."""

    def _tensors(self, tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
        return [t.float() if t.is_floating_point() and t.element_size() < 4 else t for t in tensors]

    def _arrays(self, run: Callable[[], Iterable[torch.Tensor]]) -> list[Array]:
        try:
            return super()._arrays(run)
        except Exception as error:
            cause = f"{error.__cause__ or error}"
            if "not implemented for" not in cause or not ("Half" in cause or "BFloat16" in cause):
                raise
            import torch

            raise UnsupportedGraph(
                f"torch {torch.__version__} can't compute this policy in half precision on {self.device}, so it can't be judged; "
                f"a newer torch can."
            ) from None


# ---------------------------------------------------------------------------------------------- weights that are stored in half precision
def network_before(opened: Folder, spec: PolicySpec, alignment: Alignment, rebuilt: Graph) -> tuple[torch.nn.Module, frozenset[str]]:
    """The float32 network of a folder whose weights were rounded: its model.py with the numbers of its rebuilt.onnx, on the CPU.

    spec: of the original; alignment: of the original with `rebuilt`, rebuilt.onnx in its canonical form

    Also gives the names of the tensors that the graph has: sums over the steps, say, it hasn't. Runs model.py; FolderError if
    that fails.
    """
    ours = spec.graph.constants
    like = {a: rebuilt.constants[b] for a, b in alignment.constants if a in ours and b in rebuilt.constants}
    constants = {**ours, **{a: b for a, b in like.items() if a in ours and b.shape == ours[a].shape and b.dtype == ours[a].dtype}}
    bindings = bind(replace(spec, graph=replace(spec.graph, constants=constants)), None, "onnx")
    return opened.load_whole(tensors_of(bindings)), frozenset(b.path for b in bindings.tensors if b.source == "graph")


def with_rounding(
    check: PrecisionCheck, stored: torch.nn.Module, exact: torch.nn.Module, known: Collection[str], dtype: str
) -> PrecisionCheck:
    """The check with a look at what is stored: `exact` rounded to `dtype`, to the bit?

    stored: the policy as it is loaded; exact: the float32 network before; known: names of the tensors that both have
    """
    import torch

    def bits(state: Mapping[str, torch.Tensor]) -> dict[str, Array]:
        return {k: v.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy() for k, v in state.items() if k in known}

    wanted, found = bits(copy.deepcopy(exact).to(getattr(torch, dtype)).state_dict()), bits(stored.state_dict())
    unlike = [name for name, value in wanted.items() if name not in found or not same_bits(value, found[name])]
    return replace(check, stored=dtype, rounded=len(wanted) - len(unlike), unlike=tuple(unlike))
