"""ML-Agents' policies: how their graphs are told, what their inputs and outputs mean, where their checkpoints keep what.

The output names, their order and the checkpoint's keys are those of ML-Agents 0.26 to 1.1 (`ModelSerializer`,
`NetworkBody`, `ActionModel`).
"""

import re
from collections.abc import Mapping
from dataclasses import replace

from graph2torch.graph import Graph, ValueInfo
from graph2torch.naming import name_blocks
from graph2torch.rulebook import Rule
from graph2torch.spec import Block, Input, Method, Module, Output, PolicySpec
from graph2torch.text import MEMBERS, identifier, printable

# output: (what it is, the checkpoint's tensor if it is a constant)
OUTPUTS = {
    "version_number": ("version of ML-Agents' model format", "version_number"),
    "memory_size": ("size of the recurrent memory", "memory_size_vector"),
    "continuous_actions": ("continuous actions, sampled", None),
    "continuous_action_output_shape": ("number of continuous actions", "continuous_act_size_vector"),
    "deterministic_continuous_actions": ("continuous actions, deterministic", None),
    "discrete_actions": ("discrete actions, sampled", None),
    "discrete_action_output_shape": ("options of each discrete branch", "discrete_act_size_vector"),
    "deterministic_discrete_actions": ("discrete actions, deterministic", None),
    "recurrent_out": ("memory for the next step", None),
    "action": ("actions of the former format, drawn a second time", None),
    "is_continuous_control": ("1 if the actions are continuous", "is_continuous_int_deprecated"),
    "action_output_shape": ("number of actions, former format", "act_size_vector_deprecated"),
}


def detect(graph: Graph) -> bool:
    names = {output.name for output in graph.outputs}
    return "version_number" in names and bool(names & {"continuous_actions", "discrete_actions", "action", "recurrent_out", "memory_size"})


def policy_module() -> str:
    return "Policy"


def describe(graph: Graph, blocks: tuple[Block, ...], rules: Mapping[str, Rule]) -> PolicySpec:
    inputs, outputs = _inputs(graph), _outputs(graph)
    taken = {*MEMBERS, "load", *(i.field for i in inputs), *(o.field for o in outputs)}
    blocks = name_blocks(graph, blocks, rules, taken)
    return PolicySpec(
        family="mlagents",
        title=_title(blocks, outputs),
        graph=graph,
        inputs=inputs,
        outputs=outputs,
        blocks=blocks,
        noise=_noise(blocks, outputs),
        methods=_with_memory(_methods(blocks), outputs),
    )


def _title(blocks: tuple[Block, ...], outputs: tuple[Output, ...]) -> str:
    layers = [block.code.arguments for block in blocks if block.rule == "linear" and isinstance(block.code, Module)]
    kinds = " and ".join(kind for kind in ("continuous", "discrete") if any(kind in o.name and "shape" not in o.name for o in outputs))
    if not layers:
        return f"{kinds or 'no'} actions"
    sizes = [f"{layers[0][0]} observations", *(str(size) for _, size in layers[:-1]), f"{layers[-1][1]} {kinds} actions"]
    return " → ".join(sizes)


# ---------------------------------------------------------------------------------------------- the contract
def _inputs(graph: Graph) -> tuple[Input, ...]:
    used = {v for node in graph.nodes for v in node.inputs} | set(graph.results)
    fields: set[str] = {"self", "noise"}
    inputs = []
    for value in graph.inputs:
        field = identifier(value.name, fields, "input")
        fields.add(field)
        inputs.append(Input(value.name, field, _size(value), value.shape, value.dtype.name, _input_meaning(value), value.name in used))
    return tuple(inputs)


def _input_meaning(value: ValueInfo) -> str:
    kind = {2: "a vector", 3: "a list of entities", 4: "an image (channels, height, width)"}.get(len(value.shape), "a tensor")
    if number := re.fullmatch(r"obs_(\d+)", value.name):
        return f"observation {number.group(1)}: {kind}, as the environment gives it"
    if value.name == "vector_observation":
        return "all vector observations side by side, as the environment gives them"
    if value.name.startswith("visual_observation"):
        return f"visual observation {printable(value.name.removeprefix('visual_observation_'))}"
    if value.name == "action_masks":
        return "1 allows an option, 0 forbids it"
    if value.name == "recurrent_in":
        return f"memory of the step before{_halves(value)}; zeros at first"
    return kind


def _halves(value: ValueInfo) -> str:
    size = value.shape[-1] if value.shape else 0
    return f", {size // 2} of hidden and {size // 2} of cell state" if isinstance(size, int) and size > 1 else ""


def _size(value: ValueInfo) -> str:
    """`[batch, 3]`, whatever the exporter calls the batch."""
    if len(value.shape) > 1 and not isinstance(value.shape[0], int):
        value = replace(value, shape=("batch", *value.shape[1:]))
    return value.size


def _outputs(graph: Graph) -> tuple[Output, ...]:
    fields = set(MEMBERS)
    outputs = []
    for declared, value in zip(graph.outputs, graph.results, strict=True):
        field = identifier(declared.name, fields, "output")
        fields.add(field)
        meaning, key = OUTPUTS.get(declared.name, ("", None))
        constant = graph.constants.get(value)
        if declared.name == "recurrent_out":
            meaning += _halves(declared)
        outputs.append(
            Output(
                declared.name, field, _size(declared), declared.dtype.name, meaning, value, constant, key if constant is not None else None
            )
        )
    return tuple(outputs)


def _noise(blocks: tuple[Block, ...], outputs: tuple[Output, ...]) -> dict[str, str]:
    """Noise field, called after the output it ends in → the value that is drawn."""
    reads = {value: block for block in blocks for value in block.reads}
    by_value = {output.value: output.field for output in outputs}
    noise: dict[str, str] = {}
    for block in blocks:
        for _, drawn in block.drawn:
            value = block.outputs[0]
            while value not in by_value and value in reads:
                value = reads[value].outputs[0]
            noise[identifier(by_value.get(value, "noise"), noise)] = drawn
    return noise


def _methods(blocks: tuple[Block, ...]) -> tuple[Method, ...]:
    scale = next((b for b in blocks if b.rule == "gaussian_scale"), None)
    bounded = next((b for b in blocks if b.rule == "bounded_action"), None)
    if scale is None or bounded is None:
        return ()
    mu, sigma = scale.reads[0], scale.outputs[0]
    return (
        Method("act", "Tensor", "torch.clamp(mu, -3, 3) / 3", {"mu": mu}, "deterministic actions alone"),
        Method(
            "distribution",
            "torch.distributions.Distribution",
            "torch.distributions.Independent(torch.distributions.Normal(mu, sigma), 1)",
            {"mu": mu, "sigma": sigma},
            "of the actions before clip and / 3",
        ),
    )


def _with_memory(methods: tuple[Method, ...], outputs: tuple[Output, ...]) -> tuple[Method, ...]:
    """`act` of a policy with memory gives it last: `action, memory = policy.act(obs_0, memory)`."""
    memory = next((o.value for o in outputs if o.name == "recurrent_out" and o.constant is None), None)
    if memory is None:
        return methods
    returns = {"Tensor": "tuple[Tensor, Tensor]", "tuple[Tensor, Tensor]": "tuple[Tensor, Tensor, Tensor]"}
    return tuple(
        replace(
            method,
            returns=returns[method.returns],
            result=f"{method.result}, memory",
            values={**method.values, "memory": memory},
            comment=f"{method.comment.replace(' alone', '')}, and the memory for the next step",
        )
        if method.name == "act"
        else method
        for method in methods
    )
