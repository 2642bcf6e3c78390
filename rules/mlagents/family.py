"""ML-Agents' policies: how their graphs are told, what their inputs and outputs mean, where their checkpoints keep what.

The output names, their order and the checkpoint's keys are those of ML-Agents 0.26 to 1.1 (`ModelSerializer`,
`NetworkBody`, `ActionModel`).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from graph2torch.act.contract import Acting, Input
from graph2torch.graph import Graph, ValueInfo
from graph2torch.naming import by_outputs, inputs_of, name_blocks, outputs_of
from graph2torch.rulebook import Rule, Setting
from graph2torch.spec import Argument, Block, Method, Module, Output, PolicySpec
from graph2torch.text import MEMBERS, identifier, printable

# output: (what it is, the checkpoint's tensor if it is a constant)
OUTPUTS = {
    "version_number": ("version of ML-Agents' model format", "version_number"),
    "memory_size": ("size of the recurrent memory", "memory_size_vector"),
    "continuous_actions": ("continuous actions, sampled", None),
    "continuous_action_output_shape": ("number of continuous actions", "continuous_act_size_vector"),
    "deterministic_continuous_actions": ("continuous actions, deterministic", None),
    "discrete_actions": ("discrete actions", None),
    "discrete_action_output_shape": ("options of each discrete branch", "discrete_act_size_vector"),
    "deterministic_discrete_actions": ("discrete actions, deterministic", None),
    "recurrent_out": ("memory for the next step", None),
    "action": ("actions of the former format", None),
    "is_continuous_control": ("1 if the actions are continuous", "is_continuous_int_deprecated"),
    "action_output_shape": ("number of actions, former format", "act_size_vector_deprecated"),
}
DISCRETE, HYBRID = (Path(__file__).parent / f"{kind}_distribution" / "layer.py" for kind in ("discrete", "hybrid"))


def detect(graph: Graph) -> bool:
    names = {output.name for output in graph.outputs}
    return "version_number" in names and bool(names & {"continuous_actions", "discrete_actions", "action", "recurrent_out", "memory_size"})


def policy_module() -> str:
    return "Policy"


def describe(graph: Graph, blocks: tuple[Block, ...], rules: Mapping[str, Rule]) -> PolicySpec:
    taken = {*MEMBERS, "load", *(identifier(v.name) for v in (*graph.inputs, *graph.outputs))}
    blocks = name_blocks(graph, blocks, rules, taken)
    heads = Heads(graph, blocks)
    inputs, outputs = _inputs(graph, heads), _outputs(graph, heads)
    return PolicySpec(
        family="mlagents",
        title=_title(blocks, heads, inputs, outputs),
        graph=graph,
        inputs=inputs,
        outputs=outputs,
        blocks=blocks,
        noise=_noise(heads, outputs),
        methods=_with_memory(_methods(heads, outputs), outputs),
        acting=_acting(heads, outputs),
    )


def _title(blocks: tuple[Block, ...], heads: "Heads", inputs: tuple[Input, ...], outputs: tuple[Output, ...]) -> str:
    kinds = " and ".join(kind for kind in ("continuous", "discrete") if any(kind in o.name and "shape" not in o.name for o in outputs))
    if not any(block.parameters for block in blocks):
        return f"{kinds or 'no'} actions"
    layers: dict[tuple[str, ...], str] = {}  # of those beside each other the first counts
    for block in blocks:
        if isinstance(block.code, Module) and (block.rule == "lstm" or (block.rule == "linear" and block.role.startswith("hidden layer"))):
            layers.setdefault(block.reads, f"{'LSTM ' if block.rule == 'lstm' else ''}{block.code.arguments[1]}")
    one = [heads.actions, *heads.options] in ([1], [0, 1])
    actions = [f"{heads.actions} continuous"] if heads.actions else []
    actions += [f"{_plus(heads.options)} discrete"] if heads.options else []
    return " → ".join([_observed(inputs), *layers.values(), f"{' and '.join(actions) or 'no'} action{'' if one else 's'}"])


def _observed(inputs: tuple[Input, ...]) -> str:
    """`9 observations and an image of 3 × 20 × 24`."""
    seen = [i.shape[1:] for i in inputs if i.used and "obs" in i.name]
    numbers = sum(size for shape in seen if len(shape) == 1 for size in shape if isinstance(size, int))
    parts = [f"{numbers} observation{'s' if numbers > 1 else ''}"] if numbers else []
    for rank, one in ((2, "a list of"), (3, "an image of")):
        parts += [f"{one} {' × '.join(map(str, shape))}" for shape in seen if len(shape) == rank]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts) or "no observations"


# ---------------------------------------------------------------------------------------------- heads
class Heads:
    """The end of a policy: its Gaussian, and its discrete branches in order.

    mu, sigma: values of the Gaussian, or None; bounded: how its sample becomes an action ("torch.tanh(mu)")
    actions:   number of continuous actions; options: of options of each branch
    logits, p: value of each branch's (masked) logits and probabilities
    """

    def __init__(self, graph: Graph, blocks: tuple[Block, ...]) -> None:
        self.blocks = blocks
        self.maker = {value: block for block in blocks for value in block.outputs}
        self.readers: dict[str, list[Block]] = {}
        for block in blocks:
            for value in block.reads:
                self.readers.setdefault(value, []).append(block)
        self.mu = self.sigma = None
        self.bounded = "mu"
        for block in blocks:
            if block.rule == "gaussian_sample":
                read = dict(block.inputs)  # without one that is a constant
                self.mu, self.sigma = (read[name][0] if read.get(name) else None for name in ("mu", "sigma"))
                after = {reader.rule for reader in self.readers.get(block.outputs[0], ())}
                self.bounded = (
                    "torch.clamp(mu, -3, 3) / 3" if "bounded_action" in after else "torch.tanh(mu)" if "squashed_action" in after else "mu"
                )
        self.actions = _width(self.maker.get(self.mu or ""))
        ordered = [blocks[i] for i in by_outputs(graph, blocks)]
        self.branches = [b for b in ordered if b.rule == "linear" and re.fullmatch(r"(branch|values)(_\d+)*", b.name)]
        self.options = [_width(branch) for branch in self.branches]
        softmax = {self.branch(block.outputs[0]): block for block in blocks if block.rule == "softmax"}
        chosen = [softmax[i] for i in range(len(self.branches)) if i in softmax]
        self.logits, self.p = [block.reads[0] for block in chosen], [block.outputs[0] for block in chosen]

    def branch(self, value: str) -> int | None:
        """Which branch a value comes from."""
        todo, seen = [value], set()
        while todo:
            block = self.maker.get(todo.pop())
            if block is None or id(block) in seen:
                continue
            seen.add(id(block))
            if any(block is branch for branch in self.branches):
                return next(i for i, branch in enumerate(self.branches) if block is branch)
            if block.rule not in ("linear", "silu"):
                todo += block.reads
        return None

    def meaning(self, value: str) -> str:
        """What an output is, by what makes it: "one of 3 and 2 options, sampled"; "" for what isn't a discrete action."""
        block = self.maker.get(value)
        parts = [value] if block is None or block.rule != "concat" else list(block.reads)
        kinds = {maker.rule if (maker := self.maker.get(part)) else "" for part in parts}
        numbers = [self.branch(part) for part in parts]
        options = [self.options[n] for n in numbers if n is not None]
        if kinds == {"draw_action"}:
            return f"one of {_and(options)} options, sampled"
        if kinds == {"best_action"}:
            return f"the likeliest of {_and(options)} options"
        if kinds == {"greedy_action"}:
            return f"the option of {_and(options)} with the highest value"
        if kinds == {"log_probability"}:
            alone = f" of branch {numbers[0]} alone" if len(self.branches) > len(parts) else ""
            return f"log-probabilities of {_plus(options)} options{alone}{_slices(options)}"
        if "log_probability" in kinds:
            return f"continuous actions, drawn a second time, then log-probabilities of {_plus(options)} options"
        return ""


def _width(block: Block | None) -> int:
    """How many numbers a linear layer gives."""
    size = block.code.arguments[1] if block and block.rule == "linear" and isinstance(block.code, Module) else 0
    return size if isinstance(size, int) else 0


def _plus(options: list[int]) -> str:
    return "+".join(map(str, options))


def _and(options: list[int]) -> str:
    """ "3", "3 and 2", "3, 2 and 5" """
    words = [str(n) for n in options]
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else "no"


def _slices(options: list[int]) -> str:
    """Where each branch stands among the columns."""
    if len(options) < 2:
        return ""
    ends = [sum(options[: i + 1]) for i in range(len(options))]
    return ": columns " + ", ".join(f"{end - n}:{end}" for n, end in zip(options, ends, strict=True))


# ---------------------------------------------------------------------------------------------- the contract
def _inputs(graph: Graph, heads: Heads) -> tuple[Input, ...]:
    given = {output.name for output in graph.outputs}
    inputs = []
    for found, value in zip(inputs_of(graph), graph.inputs, strict=True):
        found = replace(found, size=_size(value), meaning=_input_meaning(value, heads))
        if value.name == "action_masks":
            found = replace(found, kind="mask")
        elif value.name == "recurrent_in":
            found = replace(found, kind="memory", next="recurrent_out" if "recurrent_out" in given else "")
        inputs.append(found)
    return tuple(inputs)


def _input_meaning(value: ValueInfo, heads: Heads) -> str:
    kind = {2: "a vector", 3: "a list of entities", 4: "an image, channels first"}.get(len(value.shape), "a tensor")
    if number := re.fullmatch(r"obs_(\d+)", value.name):
        return f"observation {number.group(1)}: {kind}, as the environment gives it"
    if value.name == "vector_observation":
        return "all vector observations side by side, as the environment gives them"
    if value.name.startswith("visual_observation"):
        return f"visual observation {printable(value.name.removeprefix('visual_observation_'))}"
    if value.name == "action_masks":
        return f"a mask of {_plus(heads.options)} options, 1 allows, 0 forbids" if heads.options else "1 allows an option, 0 forbids it"
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


def _outputs(graph: Graph, heads: Heads) -> tuple[Output, ...]:
    values = dict(zip((o.name for o in graph.outputs), graph.results, strict=True))
    outputs = []
    for found, declared in zip(outputs_of(graph), graph.outputs, strict=True):
        meaning, key = OUTPUTS.get(declared.name, ("", None))
        fixed = found.constant
        if declared.name == "discrete_action_output_shape" and fixed is not None and fixed.size < len(heads.options):
            meaning = "options of all discrete branches"
        if fixed is None:
            meaning, key = _output_meaning(declared, meaning, found.value, values, heads), None
        outputs.append(replace(found, size=_size(declared), meaning=meaning, key=key))
    return tuple(outputs)


def _output_meaning(declared: ValueInfo, meaning: str, value: str, values: Mapping[str, str], heads: Heads) -> str:
    name, discrete = declared.name, heads.meaning(value)
    if name == "recurrent_out":
        return f"{meaning}{_halves(declared)}"
    if name == "action":
        same = discrete and discrete == heads.meaning(values.get("discrete_actions", ""))
        return (
            f"discrete_actions under its former name: {discrete}"
            if same
            else f"{meaning}{f': {discrete}' if discrete else ', drawn a second time'}"
        )
    if name == "deterministic_continuous_actions" and value == heads.mu and heads.bounded != "mu":
        return f"{meaning}: mu as it is, neither squashed nor clipped, which is ML-Agents' way"
    return f"{meaning}: {discrete}" if discrete else meaning


def _noise(heads: Heads, outputs: tuple[Output, ...]) -> dict[str, str]:
    """Noise field, called after the branch or after the output it ends in → the value that is drawn."""
    by_value = {output.value: output.field for output in outputs}
    noise: dict[str, str] = {}
    for block in heads.blocks:
        for _, drawn in block.drawn:
            value = block.outputs[0]
            while value not in by_value and value in heads.readers:
                value = heads.readers[value][0].outputs[0]
            name = f"branch_{heads.branch(drawn) or 0}" if block.rule == "draw_action" else by_value.get(value, "noise")
            noise[identifier(name, noise)] = drawn
    return noise


def _acting(heads: Heads, outputs: tuple[Output, ...]) -> Acting:
    given = {o.name: o for o in outputs if o.constant is None}
    names: list[str] = [name for name in ("continuous_actions", "discrete_actions") if name in given]
    names += ["action"] if not names and "action" in given else []
    act = ["continuous_actions"] * (heads.mu is not None)
    act += ["discrete_actions"] * (bool(heads.p) or any(block.rule == "greedy_action" for block in heads.blocks))
    return Acting(
        sampled={name: given[name].field for name in names},
        deterministic=(*act, *(["memory"] if act and "recurrent_out" in given else [])),
        continuous=heads.actions,
        options=tuple(heads.options),
        log_probabilities="discrete_actions" in given and heads.meaning(given["discrete_actions"].value).startswith("log-probabilities"),
    )


# ---------------------------------------------------------------------------------------------- methods
def _methods(heads: Heads, outputs: tuple[Output, ...]) -> tuple[Method, ...]:
    act: list[str] = []
    values: dict[str, str] = {}
    comment = "deterministic actions alone"
    given = {output.name: output.value for output in outputs}
    if heads.mu is not None:
        raw = given.get("deterministic_continuous_actions") == heads.mu
        act.append("mu" if raw else heads.bounded)
        values["mu"] = heads.mu
        comment += ": mu as it is, which is ML-Agents' way" if raw and heads.bounded != "mu" else ""
    if heads.p:
        best = [f"p_{i}.argmax(1, keepdim=True)" for i in range(len(heads.p))]
        act.append(f"torch.cat([{', '.join(best)}], dim=1)" if len(best) > 1 else best[0])
        values |= {f"p_{i}": value for i, value in enumerate(heads.p)}
    elif any(block.rule == "greedy_action" for block in heads.blocks):
        act.append("actions")
        values["actions"] = next(block.outputs[0] for block in heads.blocks if block.rule == "greedy_action")
    if not act:
        return ()
    returns = "Tensor" if len(act) == 1 else "tuple[Tensor, Tensor]"
    methods = [Method("act", returns, ", ".join(act), values, comment)]
    normal = "torch.distributions.Independent(torch.distributions.Normal(mu, sigma), 1)"
    branches = f"Branches({', '.join(f'logits_{i}' for i in range(len(heads.p)))})"
    before = {"mu": "", "torch.tanh(mu)": " before tanh"}.get(heads.bounded, " before clip and / 3")
    logits = {f"logits_{i}": value for i, value in enumerate(heads.logits)}
    if heads.mu and heads.sigma and heads.p:
        gaussian = {"mu": heads.mu, "sigma": heads.sigma}
        comment = f"of mu + z * sigma,{before}, and of the branches"
        methods.append(
            Method("distribution", "Hybrid", f"Hybrid({normal}, {branches})", gaussian | logits, comment, layers=(DISCRETE, HYBRID))
        )
    elif heads.mu and heads.sigma:
        gaussian = {"mu": heads.mu, "sigma": heads.sigma}
        methods.append(
            Method("distribution", "torch.distributions.Distribution", normal, gaussian, f"of mu + z * sigma,{before}".removesuffix(","))
        )
    elif heads.p:
        methods.append(Method("distribution", "Branches", branches, logits, "", layers=(DISCRETE,)))
    return tuple(methods)


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


# ---------------------------------------------------------------------------------------------- the trainer's settings
ENCODERS: dict[tuple[tuple[Argument, Argument], ...], str] = {  # kernels and strides of the convolutions
    (): "fully_connected",
    ((8, 4), (4, 2)): "simple",
    ((8, 4), (4, 2), (3, 1)): "nature_cnn",
    ((3, 1), (3, 1)): "match3",
}


def settings(spec: PolicySpec) -> dict[str, tuple[Setting, ...]]:
    """What a behaviour in configuration.yaml may say, as far as the graph tells: the values that fit it, none if it tells nothing."""
    widths = {b.code.arguments[1] for b in spec.blocks if b.rule == "linear" and b.sequence == "body" and isinstance(b.code, Module)}
    hyper = [b for b in spec.blocks if b.rule == "hyper_network"]
    layers = sum(b.rule == "linear" and b.sequence == "body" for b in spec.blocks) + len(hyper)
    vectors = any(len(i.shape) == 2 and "obs" in i.name and i.used for i in spec.inputs)
    normalised = any(b.statistics for b in spec.blocks)
    memory = next((o.constant for o in spec.outputs if o.name == "memory_size" and o.constant is not None), None)
    return {
        "network_settings.normalize": (normalised,) if normalised or vectors else (),
        "network_settings.hidden_units": tuple(w for w in widths if isinstance(w, int)) if len(widths) == 1 else (),
        "network_settings.num_layers": (layers, 0) if layers == 1 and not hyper else (layers,) if layers else (),
        "network_settings.memory.memory_size": () if memory is None or memory.size != 1 else (int(memory.item()) or None,),
        "network_settings.vis_encode_type": _encoder(spec),
        "network_settings.goal_conditioning_type": ("hyper",) if hyper else (),  # without one there may be no goals
        "threaded": (),
    }


def _encoder(spec: PolicySpec) -> tuple[str, ...]:
    """Of the images: they all have the same one."""
    images = [i for i in spec.inputs if len(i.shape) == 4 and i.used]
    if not images:
        return ()
    if any(b.rule == "residual_block" for b in spec.blocks):
        return ("resnet",)
    sequences: dict[str, list[tuple[Argument, Argument]]] = {}
    for block in spec.blocks:
        if block.rule == "convolution" and isinstance(block.code, Module):
            keywords = dict(block.code.keywords)
            sequences.setdefault(block.sequence, []).append((keywords.get("kernel_size", 0), keywords.get("stride", 1)))
    found = {ENCODERS.get(tuple(s), "") for s in sequences.values()} if sequences else {ENCODERS[()]}
    return tuple(found) if len(found) == 1 and "" not in found else ()
