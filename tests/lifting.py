"""Whether lifted.onnx is what it says: valid, the original's bits in onnxruntime, and inlined the original again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx.inliner import inline_local_functions

from graph2torch.canonical import canonicalise
from graph2torch.graph import RANDOM, ValueInfo, read_graph
from graph2torch.judge.isomorphism import align
from graph2torch.judge.observations import QUICK, observation
from graph2torch.judge.runtime import session
from graph2torch.lifted import check_lifted, lifted
from graph2torch.recognise import Recognised


def lift(recognised: Recognised) -> onnx.ModelProto:
    return lifted(recognised.spec, recognised.model.proto, recognised.book)


def check_lifting(recognised: Recognised) -> onnx.ModelProto:
    """Every promise of the lifted model, which it gives, held against the original; draws have fixed seeds while they are run."""
    proto = onnx.ModelProto.FromString(recognised.model.proto.SerializeToString())
    for number, node in enumerate(proto.graph.node, 1):
        if node.op_type in RANDOM and not any(a.name == "seed" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("seed", float(number)))
    spec = recognised.book.recognise(canonicalise(read_graph(proto, "seeded")))
    model = lifted(spec, proto, recognised.book)
    onnx.checker.check_model(model, full_check=True)
    check_lifted(model, spec, proto)
    inlined = inline_local_functions(model)
    assert not inlined.functions and {node.domain for node in inlined.graph.node} <= {""}
    alignment = align(spec.graph, canonicalise(read_graph(inlined, "inlined")))  # weights included, to the bit
    assert alignment.isomorphic, alignment
    check_bits(proto, model, spec.graph.inputs)
    return lift(recognised)


def check_bits(original: onnx.ModelProto, model: onnx.ModelProto, inputs: Sequence[ValueInfo]) -> None:
    """All outputs of both in onnxruntime, on the quick tier's observations, with the optimiser on and off."""
    tried = 0
    names = [output.name for output in original.graph.output]
    assert [output.name for output in model.graph.output] == names
    for optimised in (True, False):
        expected, given = (session(proto, optimised, "the original") for proto in (original, model))
        for batch, kind in QUICK:
            rng = np.random.default_rng([batch, *kind.encode()])
            feed = {i.name: observation(i, batch, kind, rng) for i in inputs}
            try:
                wanted = expected.run(names, feed)
            except Exception:  # the original itself can't do this batch
                continue
            for name, a, b in zip(names, wanted, given.run(names, feed), strict=True):
                assert same_bits(a, b), (name, kind, optimised)
            tried += 1
    assert tried


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """As the levels compare: a NaN equals any NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    bits = a.view(f"u{a.itemsize}") == b.view(f"u{a.itemsize}")
    return bool((bits | (np.isnan(a) & np.isnan(b))).all())
