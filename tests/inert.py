"""Whether the nodes called inert are: without them, every other output is the same to the bit."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort

from graph2torch.graph import RANDOM
from graph2torch.judge.observations import observation
from graph2torch.recognise import Recognised

CASES = ((1, "ordinary"), (3, "ordinary"), (3, "extreme"), (2, "minus zero"))


def check_inert(recognised: Recognised) -> int:
    """The graph against itself without its inert nodes; only outputs that tell fixed numbers may go with them.

    How many nodes were left away.
    """
    spec = recognised.spec
    inert = set(spec.coverage().inert)
    whole = onnx.ModelProto.FromString(recognised.model.proto.SerializeToString())
    for number, node in enumerate(whole.graph.node):
        if node.op_type in RANDOM and not any(a.name == "seed" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("seed", float(number)))
    rest = onnx.ModelProto.FromString(whole.SerializeToString())
    gone = {output for i in inert for output in whole.graph.node[i].output}
    for i in sorted(inert, reverse=True):
        del rest.graph.node[i]
    for i in reversed([i for i, output in enumerate(rest.graph.output) if output.name in gone]):
        del rest.graph.output[i]
    fixed = {output.name for output in spec.outputs if output.constant is not None}
    assert gone & {output.name for output in spec.outputs} <= fixed
    kept = [output.name for output in rest.graph.output]
    if not kept:  # a policy of fixed outputs alone
        return len(inert)
    tried = 0
    for level in (ort.GraphOptimizationLevel.ORT_ENABLE_ALL, ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
        for batch, kind in CASES:
            rng = np.random.default_rng([batch, *kind.encode()])
            feed = {i.name: observation(i, batch, kind, rng) for i in spec.graph.inputs}
            try:
                expected = session(whole, level).run(kept, feed)
            except Exception:  # the original itself can't do this batch
                continue
            given = session(rest, level).run(kept, {k: v for k, v in feed.items() if k in {i.name for i in rest.graph.input}})
            for name, a, b in zip(kept, expected, given, strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), name
            tried += 1
    assert tried
    return len(inert)


def session(proto: onnx.ModelProto, level: ort.GraphOptimizationLevel) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level, options.log_severity_level, options.intra_op_num_threads = level, 4, 1
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
