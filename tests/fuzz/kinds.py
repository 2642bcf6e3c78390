"""The kinds of cases, each with its share: what is made, and which part of the program it is given to."""

from __future__ import annotations

import ast
import io
import json
import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import onnx

from graph2torch.act.jsonlines import serve
from graph2torch.act.observations_file import complete, observations_of
from graph2torch.act.run import act_on
from graph2torch.build import Build, build
from graph2torch.canonical import canonicalise
from graph2torch.checkpoint import load_checkpoint
from graph2torch.errors import ModelError
from graph2torch.explain import explain_model
from graph2torch.graph import load
from graph2torch.inspect.file import inspect_file
from graph2torch.judge.causes import likely_causes
from graph2torch.judge.correspondence import correspond
from graph2torch.judge.divergence import first_divergence
from graph2torch.judge.isomorphism import align
from graph2torch.judge.runtime import check_accepted
from graph2torch.match import match_rules, parse_pattern
from graph2torch.operators import table
from graph2torch.output import FILES
from graph2torch.rulebook import Rule, RuleBook
from tests.commands import Result, check_trouble, run, unsafe
from tests.pages import check_page

from . import checkpoints, folders, graphs, name_cases, observation_files, rule_texts, trainings, wire
from .case import Case, Kind, WrongError
from .damage import damaged, text
from .equality import check_bits

MODEL, CHECKPOINT = "Given.onnx", "Given.pt"


# ---------------------------------------------------------------------------------------------- what is done
def read(folder: Path) -> str:
    """`inspect`, and now and then `rules --explain`, as data that JSON can write."""
    found = inspect_file(folder / MODEL)
    written = json.dumps(found, allow_nan=False)
    if len(written) % 4 == 0:
        json.dumps(explain_model(folder / MODEL), allow_nan=False)
    if len(written) > 50_000_000:
        raise WrongError(f"{len(written):,} characters of JSON")
    return "read"


def read_checkpoint(folder: Path) -> str:
    found = load_checkpoint(folder / CHECKPOINT)
    if any(array.flags.writeable for array in found.tensors.values()):
        raise WrongError("a tensor that can be written to")
    if found.size % 8 == 0:
        json.dumps(inspect_file(folder / CHECKPOINT), allow_nan=False)
    return "read"


def read_pair(folder: Path) -> str:
    json.dumps(inspect_file(folder / MODEL, folder / CHECKPOINT), allow_nan=False)
    return "read"


def built(folder: Path) -> str:
    """A build, whose source compiles and whose level an independent comparison finds true."""
    pair = folder / CHECKPOINT
    made = build(folder / MODEL, pair if pair.exists() else None, folder / "out")
    return check_output(folder / "out", made)


def check_output(out: Path, made: Build) -> str:
    if sorted(p.name for p in out.iterdir()) != sorted(FILES):
        raise WrongError(f"half an output: {sorted(p.name for p in out.iterdir())}")
    check_source((out / "model.py").read_bytes().decode("utf-8"))
    json.loads((out / "report.json").read_text("utf-8"), parse_constant=refuse)
    check_page((out / "report.html").read_text("utf-8"))
    return check_bits(made.recognised.model.proto, onnx.load(out / "rebuilt.onnx"), made.verification.level)


def refuse(constant: str) -> None:
    raise WrongError(f"{constant} in JSON")


CALLED = frozenset({"__import__", "eval", "exec", "compile", "open", "globals"})  # by name, and as methods:
METHODS = frozenset({"system", "popen", "touch", "write_text", "write_bytes", "unlink"})


def check_source(source: str) -> None:
    """It compiles, has no character that an editor would act on, and calls nothing that a name may have brought in."""
    if unsafe(source):
        raise WrongError(f"model.py holds {unsafe(source)[:5]}")
    for node in ast.walk(ast.parse(source)):
        called = node.func if isinstance(node, ast.Call) else None
        if (isinstance(called, ast.Name) and called.id in CALLED) or (isinstance(called, ast.Attribute) and called.attr in METHODS):
            raise WrongError(f"model.py calls {ast.unparse(called)}")
    compile(source, "model.py", "exec")


CHANGED = "changed since the build; going on with what is there.\n"


def told(result: Result) -> str:
    """The exit status of a command that went well, or trouble told as it should be."""
    if result.status == 2:
        warning, changed, trouble = result.err.rpartition(CHANGED)
        if unsafe(warning):
            raise WrongError(f"says {warning!r}")
        check_trouble(replace(result, err=trouble) if changed else result)
        return "refused"
    if result.status not in (0, 1) or unsafe(result.out + result.err) or (result.err and not result.err.endswith(CHANGED)):
        raise WrongError(f"status {result.status}, prints {unsafe(result.out)[:5]}, says {result.err[:300]!r}")
    if len(result.out) > 5_000_000:
        raise WrongError(f"{len(result.out):,} characters printed")
    return "printed"


def commands(*lines: tuple[str, ...]) -> Callable[[Path], str]:
    """Commands as people type them, in the case's folder; how the last one went."""

    def act(folder: Path) -> str:
        went = ""
        for line in lines:
            result = run(*line)
            went = told(result)
            if "--json" in line and result.status != 2:
                json.loads(result.out, parse_constant=refuse)
        if (folder / "out").exists() and any(line[0] == "build" for line in lines):
            check_source((folder / "out" / "model.py").read_bytes().decode("utf-8"))
        if (folder / "out" / "report.html").exists() and any(line[0] in ("build", "report") for line in lines) and went == "printed":
            check_page((folder / "out" / "report.html").read_text("utf-8"))
        return went

    return act


# ---------------------------------------------------------------------------------------------- ONNX
def onnx_bytes(rng: random.Random) -> Case:
    models = graphs.policies()
    original = rng.choice(models)
    data = damaged(rng, original, models) if rng.random() < 0.5 else wire.bent(rng, original, models)
    return Case({MODEL: data}, read)


def onnx_graphs(rng: random.Random) -> Case:
    model = graphs.bent(rng) if rng.random() < 0.75 else graphs.made(rng)
    return Case({MODEL: graphs.serialised(model)}, read)


def graph_pairs(rng: random.Random) -> Case:
    """A policy and the same with a change: what corresponds, where they part and why; and if they are called the same, whether they are."""
    model = graphs.policy(rng)
    first = model.SerializeToString()
    for _ in range(rng.choice((1, 1, 2))):
        rng.choice(graphs.LOOKALIKES if rng.random() < 0.6 else graphs.MILD)(rng, model)
    more = rng.random() < 0.15

    def act(folder: Path) -> str:
        mine, theirs = load(folder / MODEL), load(folder / "Other.onnx")
        a, b = canonicalise(mine.graph), canonicalise(theirs.graph)
        found, alignment = correspond(a, b), align(a, b)
        likely_causes(a, b, found)
        if more:
            parting = first_divergence(mine, theirs)
            json.dumps(parting and parting.told(), allow_nan=False)
        if not alignment.isomorphic:
            return "apart"
        try:
            check_accepted(theirs.proto)
        except ModelError:
            return "the same, but refused by onnxruntime"
        check_bits(
            mine.proto, theirs.proto, "graph", (True,)
        )  # without its optimiser, onnxruntime rounds products with what stands behind an Identity otherwise
        return "the same"

    return Case({MODEL: first, "Other.onnx": graphs.serialised(model)}, act)


def diffs(rng: random.Random) -> Case:
    """Two graphs, two checkpoints or one of each, of which one at least is odd."""
    model = graphs.policy(rng)
    files = {MODEL: model.SerializeToString()}
    kind = rng.random()
    if kind < 0.5:
        for _ in range(rng.choice((1, 1, 3))):
            rng.choice(rng.choice((graphs.LOOKALIKES, graphs.BENDS)))(rng, model)
        files["Other.onnx"] = graphs.serialised(model)
    elif kind < 0.6:
        files["Other.onnx"] = graphs.serialised(name_cases.named(rng, graphs.policy(rng)))
    elif kind < 0.7:
        files["Other.onnx"] = graphs.serialised(graphs.made(rng))
    else:
        files[CHECKPOINT] = checkpoints.pickled(checkpoints.odd_checkpoint(rng, model))
        if kind < 0.85:
            files["Other.pt"] = checkpoints.pickled(name_cases.checkpoint(rng, model))
            del files[MODEL]
    named = rng.sample(sorted(files), 2)
    line = ("diff", *named, *(["--json"] if rng.random() < 0.5 else []))

    def act(folder: Path) -> str:
        result = run(*line)
        went = told(result)
        if "--json" in line and result.status != 2:
            json.loads(result.out, parse_constant=refuse)
        if result.status == 0 and all(name.endswith(".onnx") for name in named):
            a, b = (load(folder / name).proto for name in named)
            if ends(a) != ends(b):
                return "the same, renamed"
            check_bits(a, b, "graph", (True,))
            return "the same"
        return "apart" if result.status == 1 else went

    return Case(files, act)


def ends(model: onnx.ModelProto) -> list[str]:
    return [v.name for v in (*model.graph.input, *model.graph.output)]


def onnx_builds(rng: random.Random) -> Case:
    kind = rng.random()
    model = graphs.slightly_bent(rng) if kind < 0.5 else graphs.made(rng) if kind < 0.85 else graphs.bent(rng)
    return Case({MODEL: graphs.serialised(model)}, built, ("out",))


# ---------------------------------------------------------------------------------------------- checkpoints
def pt_bytes(rng: random.Random) -> Case:
    return Case({CHECKPOINT: checkpoints.damaged_bytes(rng)}, read_checkpoint)


def pt_archives(rng: random.Random) -> Case:
    return Case({CHECKPOINT: checkpoints.damaged_archive(rng)}, read_checkpoint)


def pt_pickles(rng: random.Random) -> Case:
    return Case({CHECKPOINT: checkpoints.damaged_pickle(rng)}, read_checkpoint)


def pairs(rng: random.Random) -> Case:
    model = graphs.policy(rng)
    files = {MODEL: model.SerializeToString(), CHECKPOINT: checkpoints.pickled(checkpoints.odd_checkpoint(rng, model), rng.random() < 0.2)}
    return Case(files, read_pair)


def pair_builds(rng: random.Random) -> Case:
    return Case(pairs(rng).files, built, ("out",))


# ---------------------------------------------------------------------------------------------- rules
def patterns(rng: random.Random) -> Case:
    made = rule_texts.pattern(rng)
    constants, variadic, shared = (rule_texts.names(rng, made) for _ in range(3))

    def act(folder: Path) -> str:
        pattern = parse_pattern(made, "rule.py", constants, (variadic or [""])[0], shared)
        match_rules(rule_texts.graph(), [Rule("own", "own", "", "", (pattern,), folder, random)])
        return "read"

    return Case({"pattern.txt": made.encode("utf-8", "replace")}, act)


def tables(rng: random.Random) -> Case:
    rows, layer = rule_texts.rows(rng), rng.choice(rule_texts.LAYERS)

    def act(folder: Path) -> str:
        book, graph = RuleBook((), (table("own", rows, folder / "layer.py"),)), rule_texts.graph()
        return "read" if [book.rebuild(graph, node, "own") for node in graph.nodes] else "empty"

    return Case({"layer.py": layer.encode(), "rows.txt": repr(rows).encode("utf-8", "replace")}, act)


def rule_folders(rng: random.Random) -> Case:
    files = {path: content.encode("utf-8", "replace") for path, content in rule_texts.folder(rng).items()}
    files[MODEL] = graphs.policy(rng).SerializeToString()
    lines = ("inspect", MODEL, "--rules", "rules"), ("rules", "--explain", MODEL, "--rules", "rules", "--json")

    def act(folder: Path) -> str:
        for name in [
            name for name in sys.modules if name.startswith("graph2torch_rules.") and str(folder) in str(sys.modules[name].__file__)
        ]:
            del sys.modules[name]
        return commands(*lines)(folder)

    return Case(files, act)


# ---------------------------------------------------------------------------------------------- observations
def observation_case(rng: random.Random) -> Case:
    wanted = observation_files.inputs(rng)
    kind, data = observation_files.file(rng, wanted)

    def act(_: Path) -> str:
        found = observations_of(data, kind, f"given{kind}", wanted)
        rows = {len(complete(found, wanted)[i.name]) for i in wanted}
        if len(rows) != 1 or rows == {0}:
            raise WrongError(f"rows {rows}")
        return "read"

    return Case({f"given{kind}": data, "inputs.txt": repr(wanted).encode("utf-8", "replace")}, act)


# ---------------------------------------------------------------------------------------------- acting
def json_lines(rng: random.Random) -> Case:
    runner = folders.runners()[rng.choice(folders.FAMILY_NAMES)]
    data, sample = folders.lines(rng, runner), rng.random() < 0.5

    def act(_: Path) -> str:
        out = io.StringIO()
        runner.reset()
        try:
            serve(runner, io.BytesIO(data), out, sample=sample)
        finally:
            for answer in out.getvalue().splitlines():
                json.loads(answer, parse_constant=refuse)
        return "answered"

    return Case({"lines.jsonl": data}, act)


def acting(rng: random.Random) -> Case:
    """Observations from a file for a policy that acts."""
    runner = folders.runners()[rng.choice(folders.FAMILY_NAMES)]
    kind, data = observation_files.file(rng, runner.contract.inputs)

    def act(folder: Path) -> str:
        runner.reset()
        act_on(runner, folder / f"given{kind}")
        return "answered"

    return Case({f"given{kind}": data}, act)


def folders_opened(rng: random.Random) -> Case:
    line = ("run", "out", *(["--sample"] if rng.random() < 0.5 else []), *(["--json"] if rng.random() < 0.5 else []))
    return Case(folders.damaged_folder(rng), commands(line))


def folders_verified(rng: random.Random) -> Case:
    return Case(folders.damaged_folder(rng), commands(("verify", "out", "Tiny.onnx", *(["--json"] if rng.random() < 0.5 else []))))


def pages(rng: random.Random) -> Case:
    return Case(folders.damaged_folder(rng), commands(("report", "out")))


# ---------------------------------------------------------------------------------------------- trainings
def training_folders(rng: random.Random) -> Case:
    printed = rng.random() < 0.3

    def act(folder: Path) -> str:
        if printed:
            return commands(("inspect", "run"))(folder)
        json.dumps(inspect_file(folder / "run"), allow_nan=False)
        return "read"

    return Case(trainings.folder(rng), act)


# ---------------------------------------------------------------------------------------------- names
def names(rng: random.Random) -> Case:
    model = graphs.serialised(name_cases.named(rng, graphs.policy(rng)))
    lines = rng.choice(((("inspect", MODEL),), (("inspect", MODEL, "--json"),), (("rules", "--explain", MODEL),)))
    return Case({MODEL: model}, commands(*lines))


def name_builds(rng: random.Random) -> Case:
    model = graphs.policy(rng)
    pair = rng.random() < 0.3
    files: dict[str, bytes] = {CHECKPOINT: checkpoints.pickled(name_cases.checkpoint(rng, model))} if pair else {}
    files[MODEL] = graphs.serialised(name_cases.named(rng, model))
    line = ("build", MODEL, *([CHECKPOINT] if pair else []), "-o", "out", *(["--json"] if rng.random() < 0.2 else []))
    return Case(files, commands(line), ("out",))


def key_names(rng: random.Random) -> Case:
    model = graphs.policy(rng)
    files = {MODEL: model.SerializeToString(), CHECKPOINT: checkpoints.pickled(name_cases.checkpoint(rng, model))}
    return Case(files, commands(rng.choice((("inspect", CHECKPOINT), ("inspect", MODEL, CHECKPOINT), ("inspect", CHECKPOINT, "--json")))))


def file_names(rng: random.Random) -> Case:
    name = name_cases.file_name(rng) + rng.choice((".onnx", ".pt", "", ".npz"))
    data = rng.choice((graphs.policy(rng).SerializeToString(), checkpoints.saved(), b"", text(rng).encode()))
    return Case(
        {name: data}, commands(("inspect", "--", name), ("rules", "--explain", f"./{name}"), ("inspect", "--json", "--", f"./{name}"))
    )


KINDS: Mapping[str, Kind] = {
    "onnx-bytes": Kind(onnx_bytes, 20),
    "onnx-graphs": Kind(onnx_graphs, 15),
    "graph-pairs": Kind(graph_pairs, 3),
    "diffs": Kind(diffs, 1, 2**30),
    "onnx-builds": Kind(onnx_builds, 0.8, 2**31),
    "pt-bytes": Kind(pt_bytes, 12),
    "pt-archives": Kind(pt_archives, 10),
    "pt-pickles": Kind(pt_pickles, 20),
    "pairs": Kind(pairs, 1),
    "pair-builds": Kind(pair_builds, 0.2, 2**31),
    "patterns": Kind(patterns, 12),
    "tables": Kind(tables, 3),
    "rule-folders": Kind(rule_folders, 1),
    "observations": Kind(observation_case, 20),
    "json-lines": Kind(json_lines, 8),
    "acting": Kind(acting, 4),
    "folders": Kind(folders_opened, 1),
    "folders-verified": Kind(folders_verified, 0.05, 2**31),
    "pages": Kind(pages, 1),
    "trainings": Kind(training_folders, 5),
    "names": Kind(names, 3),
    "name-builds": Kind(name_builds, 0.2, 2**31),
    "key-names": Kind(key_names, 0.8),
    "file-names": Kind(file_names, 0.4),
}
