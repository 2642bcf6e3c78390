"""ML-Agents' policies: how their graphs are told, what their inputs and outputs mean, where their checkpoints keep what.

The output names, their order and the checkpoint's keys are those of ML-Agents 0.26 to 1.1 (`ModelSerializer`,
`NetworkBody`, `ActionModel`).
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from graph2torch.graph import Graph, ValueInfo
from graph2torch.spec import Block, Expression, Input, Method, Module, Output, PolicySpec
from graph2torch.text import identifier, printable

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
    "recurrent_out": ("recurrent memory for the next step", None),
    "action": ("actions of the former format, drawn a second time", None),
    "is_continuous_control": ("1 if the actions are continuous", "is_continuous_int_deprecated"),
    "action_output_shape": ("number of actions, former format", "act_size_vector_deprecated"),
}
HEADS = {"gaussian_scale", "gaussian_sample", "bounded_action"}


def detect(graph: Graph) -> bool:
    names = {output.name for output in graph.outputs}
    return "version_number" in names and bool(names & {"continuous_actions", "discrete_actions", "action", "recurrent_out", "memory_size"})


def policy_module() -> str:
    return "Policy"


def global_step(module: str) -> bool:
    return module == "global_step"


def describe(name: str, graph: Graph, blocks: tuple[Block, ...]) -> PolicySpec:
    taken = {"forward", "act", "distribution", "load", *(identifier(i.name) for i in graph.inputs)}
    inputs = _inputs(graph, taken)
    outputs = _outputs(graph)
    taken |= {o.field for o in outputs}
    blocks = _name(graph, blocks, taken)
    return PolicySpec(
        family="mlagents",
        title=_title(blocks, outputs),
        graph=graph,
        inputs=inputs,
        outputs=outputs,
        blocks=blocks,
        noise=_noise(graph, blocks, outputs),
        methods=_methods(blocks),
    )


def candidates(spec: PolicySpec, block: Block, keys: Iterable[str]) -> tuple[str, ...]:
    """Where ML-Agents keeps the block's tensors, by its part in the network; likeliest first."""
    place = spec.module_path(block)
    if block.rule == "normalizer":
        observation = re.search(r"obs_(\d+)", block.role)
        numbers = [observation.group(1)] if observation else sorted({m.group(1) for k in keys if (m := re.search(r"processors\.(\d+)\.normalizer\.", k))}, key=int)
        return tuple(f"network_body.{middle}processors.{i}.normalizer" for i in numbers for middle in ("observation_encoder.", ""))
    if place.startswith("body."):
        return tuple(f"network_body.{encoder}.seq_layers.{place.removeprefix('body.')}" for encoder in ("_body_endoder", "linear_encoder"))
    if block.name == "mu":
        return ("action_model._continuous_distribution.mu",)
    if block.name == "log_sigma":
        return ("action_model._continuous_distribution",)
    return ()


# ---------------------------------------------------------------------------------------------- names and roles
def _name(graph: Graph, blocks: tuple[Block, ...], taken: set[str]) -> tuple[Block, ...]:
    readers: dict[str, list[Block]] = {}
    for block in blocks:
        for value in block.reads:
            readers.setdefault(value, []).append(block)
    source = {value.name: value.name for value in graph.inputs}  # value → the observation it comes from
    for block in blocks:
        if block.rule == "slice_observation" and block.reads[0] in source and isinstance(block.code, Expression):
            source[block.outputs[0]] = f"{block.reads[0]}{block.code.text.removeprefix('x')}"
    several = sum(block.rule == "normalizer" for block in blocks) > 1
    hidden = 0
    named: list[Block] = []
    for block in blocks:
        following = {b.rule for b in readers.get(block.outputs[0], ())}
        if block.rule == "normalizer":
            origin = source.get(block.reads[0], "observation")
            number = re.fullmatch(r"obs_(\d+)", origin)
            suffix = f"_{number.group(1) if number else sum(b.rule == 'normalizer' for b in named)}" if several else ""
            block = replace(block, name=f"normalizer{suffix}", role=f"normaliser of {printable(origin)}")
        elif block.rule == "slice_observation":
            block = replace(block, role=f"observation {printable(source.get(block.outputs[0], block.reads[0]))}")
        elif block.rule == "concat":
            block = replace(block, role="observations side by side")
        elif block.rule == "linear" and following & HEADS:
            block = replace(block, name="mu", label="mu", role="head: mean of the actions, mu")
        elif block.rule == "linear":
            hidden += 1
            block = replace(block, name=f"layer_{hidden}", role=f"hidden layer {hidden}")
        elif block.rule == "silu":
            block = replace(block, name=f"silu_{hidden}", role=f"activation of hidden layer {hidden}")
        elif block.rule == "gaussian_scale":
            block = replace(block, name="log_sigma", label="sigma", role="head: standard deviation of the actions, sigma")
        elif block.rule == "gaussian_sample":
            block = replace(block, role="head: sampled actions, not yet bounded")
        elif block.rule == "bounded_action":
            drawn = block.reads[0] in {o for b in named if b.rule == "gaussian_sample" for o in b.outputs}
            kind = "sampled" if drawn else "deterministic"
            block = replace(block, label="sampled" if drawn else "", role=f"head: {kind} actions within ±1")
        else:
            block = replace(block, name=block.rule, role=block.rule.replace("_", " "))
        if block.name:
            block = replace(block, name=identifier(block.name, taken))
            taken.add(block.name)
        named.append(block)
    return _sequences(tuple(named), readers, set(graph.results), taken)


def _sequences(blocks: tuple[Block, ...], readers: dict[str, list[Block]], results: set[str], taken: set[str]) -> tuple[Block, ...]:
    """Chains of hidden layers become one nn.Sequential: body, body_2 …"""
    by_input = {block.reads[0]: block for block in blocks if len(block.reads) == 1 and block.rule in ("linear", "silu") and block.label != "mu"}
    chained: dict[str, str] = {}
    for block in blocks:
        if block.rule != "linear" or block.label == "mu" or block.name in chained:
            continue
        chain = [block]
        while (value := chain[-1].outputs[0]) in by_input and len(readers[value]) == 1 and value not in results:
            chain.append(by_input[value])
        if len(chain) > 1:
            body = identifier("body", taken)
            taken.add(body)
            chained.update({member.name: body for member in chain})
    return tuple(replace(block, sequence=chained.get(block.name, "")) for block in blocks)


def _title(blocks: tuple[Block, ...], outputs: tuple[Output, ...]) -> str:
    layers = [block.code.arguments for block in blocks if block.rule == "linear" and isinstance(block.code, Module)]
    kinds = " and ".join(kind for kind in ("continuous", "discrete") if any(kind in o.name and "shape" not in o.name for o in outputs))
    if not layers:
        return f"{kinds or 'no'} actions"
    sizes = [f"{layers[0][0]} observations", *(str(size) for _, size in layers[:-1]), f"{layers[-1][1]} {kinds} actions"]
    return " → ".join(sizes)


# ---------------------------------------------------------------------------------------------- the contract
def _inputs(graph: Graph, taken: set[str]) -> tuple[Input, ...]:
    used = {v for node in graph.nodes for v in node.inputs} | set(graph.results)
    fields: set[str] = {"self", "noise"}
    inputs = []
    for value in graph.inputs:
        field = identifier(value.name, fields, "input")
        fields.add(field)
        inputs.append(Input(value.name, field, value.size, value.shape, value.dtype.name, _input_meaning(value), value.name in used))
    return tuple(inputs)


def _input_meaning(value: ValueInfo) -> str:
    kind = {2: "a vector", 3: "a list of entities", 4: "an image"}.get(len(value.shape), "a tensor")
    if number := re.fullmatch(r"obs_(\d+)", value.name):
        return f"observation {number.group(1)}: {kind}, as the environment gives it"
    if value.name == "vector_observation":
        return "all vector observations side by side, as the environment gives them"
    if value.name.startswith("visual_observation"):
        return f"visual observation {printable(value.name.removeprefix('visual_observation_'))}"
    if value.name == "action_masks":
        return "1 allows an option, 0 forbids it"
    if value.name == "recurrent_in":
        return "recurrent memory of the step before"
    return kind


def _outputs(graph: Graph) -> tuple[Output, ...]:
    fields: set[str] = {"count", "index"}  # a named tuple's own
    outputs = []
    for declared, value in zip(graph.outputs, graph.results, strict=True):
        field = identifier(declared.name, fields, "output")
        fields.add(field)
        meaning, key = OUTPUTS.get(declared.name, ("", None))
        constant = graph.constants.get(value)
        outputs.append(Output(declared.name, field, declared.size, declared.dtype.name, meaning, value, constant, key if constant is not None else None))
    return tuple(outputs)


def _noise(graph: Graph, blocks: tuple[Block, ...], outputs: tuple[Output, ...]) -> dict[str, str]:
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
