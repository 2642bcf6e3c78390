"""The pattern engine: what it finds, what it refuses, and why it says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx.parser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from graph2torch.canonical import canonicalise
from graph2torch.errors import RuleError
from graph2torch.graph import Graph, read_graph
from graph2torch.match import COMMUTATIVE, Match, Matchable, Refusal, match_rules, parse_pattern


def graph_of(text: str, opset: int = 13) -> Graph:
    return canonicalise(
        read_graph(helper.make_model(onnx.parser.parse_graph(text), opset_imports=[helper.make_opsetid("", opset)]), "graph")
    )


class Rule(Matchable):
    def __init__(
        self,
        *texts: str,
        constants: tuple[str, ...] = (),
        variadic: str = "",
        shared: tuple[str, ...] = (),
        accept: Callable[[Match], Refusal | None] | None = None,
    ) -> None:
        self.name = texts[0].split()[0]
        self.patterns = tuple(parse_pattern(text, "test", constants, variadic, shared) for text in texts)
        self.accept = accept

    def check(self, match: Match) -> Refusal | None:
        return self.accept(match) if self.accept else None


def places(graph: Graph, *rules: Rule) -> list[tuple[str, list[str]]]:
    claims, _ = match_rules(graph, rules)
    return [(claim.rule, [node.op for node in claim.match.nodes]) for claim in claims]


SILU = "SiLU (x) => (y) { s = Sigmoid (x) y = Mul (x, s) }"


def test_a_diamond_is_matched_in_both_operand_orders() -> None:
    for operands in ("x, s", "s, x"):
        graph = graph_of(f"g (float[n] x) => (float[n] y) {{ s = Sigmoid (x) y = Mul ({operands}) }}")
        assert places(graph, Rule(SILU)) == [("SiLU", ["Sigmoid", "Mul"])]


@settings(deadline=None, max_examples=60)
@given(
    op=st.sampled_from(sorted(COMMUTATIVE & {"Add", "Mul", "Max", "Min", "Sum", "Mean"})),
    flips=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_commutative_operands_match_however_they_are_written(op: str, flips: tuple[bool, bool, bool]) -> None:
    def pair(a: str, b: str, flip: bool) -> str:
        return f"{b}, {a}" if flip else f"{a}, {b}"

    graph = graph_of(
        f"g (float[n] x, float[n] z) => (float[n] y) {{ a = Relu (x) b = {op} ({pair('a', 'z', flips[0])}) c = {op} ({pair('b', 'x', flips[1])}) y = {op} ({pair('c', 'a', flips[2])}) }}"
    )
    rule = Rule(f"Deep (x, z) => (y) {{ a = Relu (x) b = {op} (a, z) c = {op} (b, x) y = {op} (c, a) }}")
    assert len(places(graph, rule)) == 1


def test_operands_of_other_operators_do_not_commute() -> None:
    graph = graph_of("g (float[n] x, float[n] z) => (float[n] y) { r = Relu (x) y = Sub (z, r) }")
    assert places(graph, Rule("Minus (x, z) => (y) { r = Relu (x) y = Sub (r, z) }")) == []
    assert places(graph, Rule("Minus (x, z) => (y) { r = Relu (x) y = Sub (z, r) }")) != []


def test_one_name_means_one_tensor() -> None:
    graph = graph_of("g (float[n] x, float[n] z) => (float[n] y) { s = Sigmoid (x) y = Mul (z, s) }")
    claims, misses = match_rules(graph, [Rule(SILU)])
    assert claims == ()
    assert "'z'" in str(misses[0].refusal) or "'x'" in str(misses[0].refusal)


def test_an_inner_value_used_elsewhere_refuses_and_says_so() -> None:
    graph = graph_of("g (float[n] x) => (float[n] y, float[n] z) { s = Sigmoid (x) y = Mul (x, s) z = Relu (s) }")
    claims, misses = match_rules(graph, [Rule(SILU)])
    assert claims == ()
    assert "also used by" in str(misses[0].refusal) and "Relu" in str(misses[0].refusal)


def test_an_inner_value_that_is_an_output_refuses_and_says_so() -> None:
    graph = graph_of("g (float[n] x) => (float[n] y, float[n] s) { s = Sigmoid (x) y = Mul (x, s) }")
    _, misses = match_rules(graph, [Rule(SILU)])
    assert "is an output of the graph" in str(misses[0].refusal)


def test_a_block_that_reads_what_it_makes_is_refused_and_says_so() -> None:
    two = Rule("Two (x, z) => (a, b) { a = Relu (x) b = Add (a, z) }")
    apart = graph_of("g (float[n] x, float[n] z) => (float[n] a, float[n] b) { a = Relu (x) e = Exp (z) b = Add (a, e) }")
    assert len(places(apart, two)) == 1
    graph = graph_of("g (float[n] x) => (float[n] a, float[n] b) { a = Relu (x) e = Exp (a) b = Add (a, e) }")
    claims, misses = match_rules(graph, [two])
    assert claims == ()
    assert "depends on what it makes" in str(misses[0].refusal)


def test_claims_come_after_those_that_they_read() -> None:
    two = Rule("Two (x, z) => (a, b) { a = Relu (x) s = Sigmoid (a) b = Mul (s, z) }")
    sign = Rule("Negative (x) => (y) { y = Neg (x) }")
    graph = graph_of("g (float[n] x, float[n] z) => (float[n] b, float[n] c) { a = Relu (x) c = Neg (a) s = Sigmoid (a) b = Mul (s, z) }")
    assert [name for name, _ in places(graph, two, sign)] == ["Two", "Negative"]


def test_larger_patterns_go_first_and_each_node_is_claimed_once() -> None:
    graph = graph_of("g (float[n] x) => (float[n] y) { s = Sigmoid (x) m = Mul (x, s) y = Relu (m) }")
    large = Rule("Large (x) => (y) { s = Sigmoid (x) m = Mul (x, s) y = Relu (m) }")
    assert places(graph, Rule(SILU), Rule("Relu (x) => (y) { y = Relu (x) }"), large) == [("Large", ["Sigmoid", "Mul", "Relu"])]


def test_claims_never_overlap() -> None:
    graph = graph_of("g (float[n] x) => (float[n] y) { a = Relu (x) b = Relu (a) c = Relu (b) y = Relu (c) }")
    claims, _ = match_rules(graph, [Rule("Two (x) => (y) { a = Relu (x) y = Relu (a) }"), Rule("One (x) => (y) { y = Relu (x) }")])
    nodes = [node.index for claim in claims for node in claim.match.nodes]
    assert sorted(nodes) == sorted(set(nodes)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "text",
    [
        "g (float[n] x) => (float[n] y) { k = Constant <value = float {3.0}> () y = Div (x, k) }",
        "g (float[n] x) => (float[n] y) <float k = {3.0}> { y = Div (x, k) }",
        "g (float[n] x) => (float[n] y) <float[1] k = {3.0}> { y = Div (x, k) }",
        "g (float[n] x) => (float[n] y) <float k = {3.0}> { i = Identity (k) j = Identity (i) y = Div (x, j) }",
    ],
)
def test_a_constant_matches_by_value_wherever_it_stands(text: str) -> None:
    rule = Rule("Third (x) => (y) { k = Constant <value = float {3.0}> () y = Div (x, k) }")
    assert len(places(graph_of(text), rule)) == 1
    claims, misses = match_rules(graph_of(text.replace("3.0", "3.0000002")), [rule])
    assert claims == () and "not 3.0" in str(misses[0].refusal)


def test_attributes_must_have_their_default_unless_the_pattern_names_them() -> None:
    graph = graph_of("g (float[n, m] x) => (float[n, m] y) { y = Softmax <axis = 0> (x) }")
    assert places(graph, Rule("S (x) => (y) { y = Softmax (x) }")) == []
    assert places(graph, Rule("S (x) => (y) { y = Softmax <axis = 1> (x) }")) == []
    assert len(places(graph, Rule("S (x) => (y) { y = Softmax <axis = 0> (x) }"))) == 1
    claims, _ = match_rules(graph, [Rule("S <axis> (x) => (y) { y = Softmax <axis: int = @axis> (x) }")])
    assert claims[0].match.attributes == {"axis": 0}


def test_captured_constants_must_be_constants() -> None:
    text = "Linear (x, w, b) => (y) { y = Gemm <transB = 1> (x, w, b) }"
    graph = graph_of("g (float[n, 2] x, float[3, 2] w, float[3] b) => (float[n, 3] y) { y = Gemm <transB = 1> (x, w, b) }")
    claims, misses = match_rules(graph, [Rule(text, constants=("w", "b"))])
    assert claims == () and "(w) is not a constant" in str(misses[0].refusal)
    assert len(places(graph, Rule(text))) == 1


def test_a_variadic_operand_takes_the_rest() -> None:
    graph = graph_of("g (float[n, 1] a, float[n, 1] b, float[n, 1] c) => (float[n, 3] y) { y = Concat <axis = 1> (a, b, c) }")
    claims, _ = match_rules(graph, [Rule("Join <axis> (parts) => (y) { y = Concat <axis: int = @axis> (parts) }", variadic="parts")])
    assert claims[0].match.operands("parts") == ("a", "b", "c")


def test_a_check_refuses_with_its_reason() -> None:
    graph = graph_of("g (float[n] x) => (float[n] y) { s = Sigmoid (x) y = Mul (x, s) }")
    _, misses = match_rules(graph, [Rule(SILU, accept=lambda match: Refusal("too hot", match.nodes[0]))])
    assert "too hot" in str(misses[0].refusal) and misses[0].matched == misses[0].size == 2


def test_backtracking_finds_the_operand_that_fits() -> None:
    """Both operands of the last Add are products; only one of the two assignments works out."""
    graph = graph_of(
        "g (float[n] x, float[n] z) => (float[n] y) { a = Relu (x) b = Tanh (z) p = Mul (a, z) q = Mul (b, x) y = Add (q, p) }",
    )
    rule = Rule("Cross (x, z) => (y) { a = Relu (x) b = Tanh (z) p = Mul (a, z) q = Mul (b, x) y = Add (p, q) }")
    assert len(places(graph, rule)) == 1


def test_many_equal_branches_are_matched_in_reasonable_time() -> None:
    branches = " ".join(f"r{i} = RandomNormalLike (x) s{i} = Sigmoid (r{i}) m{i} = Mul (r{i}, s{i})" for i in range(200))
    joined = ", ".join(f"m{i}" for i in range(200))
    graph = graph_of(f"g (float[n] x) => (float[n] y) {{ {branches} y = Sum ({joined}) }}")
    assert len(places(graph, Rule(SILU))) == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Broken (x => (y) { y = Relu (x) }", "not a valid ONNX function"),
        ("A (x) => (y) { y = Softmax <axis = @axis> (x) }", "needs a type"),
        ("A (x) => (y) { y = Softmax <axis: int = @axis> (x) }", "not declared"),
        ("A (x, z) => (y) { y = Relu (x) }", "`z` is not used"),
        ("A (x) => (y) { z = Relu (x) }", "`y` is not produced"),
        ("A (x) => (y) { y = Add (x, q) }", "`q` is read"),
        ("A (x, z) => (y, w) { y = Relu (x) w = Relu (z) }", "share no value"),
    ],
)
def test_patterns_that_can_not_be_used_are_refused_with_a_reason(text: str, words: str) -> None:
    with pytest.raises(RuleError, match=words):
        parse_pattern(text, str(Path("rules/test/rule.py")))


TWICE = "g (float[n] x, float[n] y) => (float[n] p, float[n] q) { s = Sigmoid (x) a = Mul (s, y) p = Exp (a) b = Add (s, y) q = Tanh (b) }"
LEFT = "Left (x, y) => (p) { s = Sigmoid (x) a = Mul (s, y) p = Exp (a) }"
RIGHT = "Right (x, y) => (q) { t = Sigmoid (x) b = Add (t, y) q = Tanh (b) }"


def test_shared_values_are_held_by_several_matches() -> None:
    graph = graph_of(TWICE)
    assert places(graph, Rule(LEFT), Rule(RIGHT)) == []  # the Sigmoid can't stay inside either
    both = [("Left", ["Sigmoid", "Mul", "Exp"]), ("Right", ["Sigmoid", "Add", "Tanh"])]
    assert places(graph, Rule(LEFT, shared=("s",)), Rule(RIGHT, shared=("t",))) == both


def test_a_value_is_shared_only_if_all_who_need_it_compute_it() -> None:
    graph = graph_of(TWICE)
    plain = Rule("Plain (t, y) => (q) { b = Add (t, y) q = Tanh (b) }")
    assert places(graph, Rule(LEFT, shared=("s",)), plain) == [("Plain", ["Add", "Tanh"])]
    kept = graph_of(TWICE.replace("float[n] q)", "float[n] q, float[n] s)"))
    assert places(kept, Rule(LEFT, shared=("s",)), Rule(RIGHT, shared=("t",))) == []  # an output of the graph


def test_random_numbers_are_never_shared() -> None:
    graph = graph_of(TWICE.replace("Sigmoid", "RandomNormalLike"))
    rules = [Rule(text.replace("Sigmoid", "RandomNormalLike"), shared=("s", "t")) for text in (LEFT, RIGHT)]
    assert places(graph, *rules) == []


UNARY = ["Neg", "Exp", "Tanh", "Abs", "Relu", "Sigmoid", "Sqrt", "Floor", "Ceil", "Log"]


def test_operands_of_a_long_commutative_operator_are_found_in_any_order() -> None:
    """Ten operands have 3,628,800 orders."""
    names = [f"v{i}" for i in range(10)]
    made = " ".join(f"{name} = {op} (x)" for name, op in zip(names, UNARY, strict=True))
    rule = Rule(f"Long (x) => (y) {{ {made} y = Sum ({', '.join(names)}) }}")
    graph = graph_of(f"g (float[n] x) => (float[n] y) {{ {made} y = Sum ({', '.join(reversed(names))}) }}")
    assert places(graph, rule) == [("Long", [*UNARY, "Sum"])]


def test_a_search_that_leads_nowhere_is_given_up_and_says_so() -> None:
    """Ten operands that may all change places, and a check that accepts none of the orders."""
    given = [f"x{i}" for i in range(10)]
    graph = graph_of(f"g ({', '.join(f'float[n] {name}' for name in given)}) => (float[n] y) {{ y = Sum ({', '.join(given)}) }}")
    rule = Rule(f"Any ({', '.join(given)}) => (y) {{ y = Sum ({', '.join(given)}) }}", accept=lambda m: Refusal("never", m.nodes[0]))
    claims, misses = match_rules(graph, [rule])
    assert claims == ()
    assert "given up" in str(misses[0].refusal)


def test_many_readers_of_one_value_are_not_searched_for_each_of_them() -> None:
    """A rule with two results, whose second is looked for among what reads the same value."""
    count = 3000
    made = " ".join(f"r{i} = Relu (x) e{i} = Tanh (r{i}) s{i} = Sub (e{i}, w{i})" for i in range(count))
    weights = ", ".join(f"float[1] w{i} = {{{i}.0}}" for i in range(count))
    graph = graph_of(f"g (float[n] x) => (float[n] y) <{weights}> {{ {made} y = Sum ({', '.join(f's{i}' for i in range(count))}) }}")
    rule = Rule("Two (x, k) => (a, b) { r = Relu (x) a = Exp (r) e = Tanh (r) b = Sub (e, k) }")
    claims, _ = match_rules(graph, [rule])
    assert claims == ()
