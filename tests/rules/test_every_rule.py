"""Every rule, found by itself: its pattern in onnxruntime against its layer in torch, and the export matched again.

For each EXAMPLE graph of each rule, with random sizes and values: the rule must match and claim every node; the torch
code it lifts to must compute what onnxruntime computes; exported, it must be the same computation bit for bit, and be
matched by the same rule. Each NEAR_MISS graph must be refused.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from graph2torch.build import rebuild
from graph2torch.canonical import canonicalise
from graph2torch.graph import Model, read_graph
from graph2torch.judge.verify import EQUAL
from graph2torch.match import match_rules
from graph2torch.recognise import Recognised
from graph2torch.rulebook import Rule, RuleBook, load_rules

BOOK = load_rules()
RULES = BOOK.rules
EXAMPLES = [pytest.param(rule, text, id=f"{rule.name}-{text.split()[0]}") for rule in RULES for text in rule.examples()]
NEAR_MISSES = [pytest.param(rule, text, id=f"{rule.name}-{text.split()[0]}") for rule in RULES for text in rule.examples("NEAR_MISS")]
TYPES = {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.DOUBLE: np.float64, onnx.TensorProto.INT64: np.int64}


def instance(rule: Rule, text: str, sizes: dict[str, int], rng: np.random.Generator) -> onnx.ModelProto:
    """The example with its symbolic sizes filled in (all but the batch) and its constants drawn at random."""
    graph = onnx.parser.parse_graph(text)
    opset = getattr(rule.module, "OPSETS", {}).get(graph.name, 9)
    constants = set(getattr(rule.module, "CONSTANTS", ()))
    ranges = getattr(rule.module, "RANGES", {})
    inputs = list(graph.input)
    del graph.input[:]
    for value in inputs:
        tensor = value.type.tensor_type
        for dim in tensor.shape.dim:
            if dim.dim_param and dim.dim_param != "batch":
                dim.dim_value = sizes.setdefault(dim.dim_param, int(rng.integers(1, 8)))
        if value.name in constants:
            shape = [d.dim_value for d in tensor.shape.dim]
            low, high = ranges.get(value.name, (-2.0, 2.0))
            array = rng.uniform(low, high, shape).astype(TYPES[tensor.elem_type])
            graph.initializer.append(numpy_helper.from_array(array, value.name))
        else:
            graph.input.append(value)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)


def recognise_with(rule: Rule, proto: onnx.ModelProto) -> Recognised:
    """The graph as seen by this rule alone, or with those that make what its examples read."""
    generic = BOOK.families[-1]
    book = RuleBook(((rule.family, generic[1], (rule, *(r for r in RULES if r.family == rule.family and r.name in makers(rule)))),))
    model = Model(Path("example.onnx"), "0" * 64, 0, proto, read_graph(proto, "example"))
    return Recognised(model, book.recognise(canonicalise(model.graph)), book)


def makers(rule: Rule) -> tuple[str, ...]:
    return tuple(getattr(rule.module, "MAKERS", ()))


def test_there_are_rules_and_each_brings_examples() -> None:
    assert len(RULES) >= 8
    for rule in RULES:
        assert rule.examples(), f"{rule.name} has no EXAMPLE"
        assert rule.examples("NEAR_MISS"), f"{rule.name} has no NEAR_MISS"


def test_every_pattern_is_shown_by_an_example() -> None:
    for rule in RULES:
        matched = set()
        for text in rule.examples():
            claims, _ = match_rules(canonicalise(read_graph(instance(rule, text, {}, np.random.default_rng(0)), "example")), [rule])
            matched |= {claim.match.pattern.name for claim in claims}
        assert matched == {p.name for p in rule.patterns}, rule.name


@pytest.mark.parametrize(("rule", "text"), EXAMPLES)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True, database=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_layer_computes_the_pattern_and_matches_again(rule: Rule, text: str, seed: int) -> None:
    rng = np.random.default_rng([seed, zlib.crc32(text.encode())])
    recognised = recognise_with(rule, instance(rule, text, {}, rng))
    spec = recognised.spec
    assert [block.rule for block in spec.blocks] == [*makers(rule), rule.name]
    assert not spec.unexplained and not spec.coverage().inert

    made = rebuild(recognised)
    assert made.verification.level in EQUAL, made.verification.reason  # original against export, in onnxruntime
    assert made.verification.module and all(f.within() for f in made.verification.module)  # torch against onnxruntime
    assert all(f.compared for f in (*made.verification.rebuilt, *made.verification.module))

    again = recognise_with(rule, made.rebuilt).spec
    assert [block.rule for block in again.blocks] == [*makers(rule), rule.name]
    assert not again.unexplained


@pytest.mark.parametrize(("rule", "text"), NEAR_MISSES)
def test_near_misses_are_refused(rule: Rule, text: str) -> None:
    proto = instance(rule, text, {}, np.random.default_rng(0))
    claims, _ = match_rules(canonicalise(read_graph(proto, "example")), [rule])
    assert claims == ()
