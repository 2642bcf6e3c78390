"""The command line: `graph2torch build Huggy.onnx Huggy.pt`. Run it from a checkout as `python cli.py`, or installed."""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec

os.environ.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")  # a broken device plugin must not take the CPU down
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # torch's exporter would warn about what it does as it should


def interrupted(*_: object) -> NoReturn:
    """Ctrl-C ends the process at once, in whatever library it is: what writes files waits and tidies up by itself.

    A KeyboardInterrupt would be lost in callbacks, or become another error where a library is being imported.
    """
    with suppress(OSError):
        os.write(2, (b"\r\x1b[K" if os.isatty(2) else b"") + b"graph2torch: interrupted; nothing is left half written.\n")
    os._exit(130)


def watch() -> None:
    """Sets `interrupted` for Ctrl-C, unless that is ignored (in the background) or somebody else's business."""
    with suppress(ValueError):  # not in the main thread
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupted)


def unwatch() -> None:
    """From here on Ctrl-C comes too late: all is done, and while Python ends it would look as if it were not."""
    if signal.getsignal(signal.SIGINT) is interrupted:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    watch()  # here already: importing typer takes a while

import typer  # noqa: E402

if TYPE_CHECKING:
    from graph2torch.devices.device import Device

P = ParamSpec("P")

EXIT = """Exit status: 0 equal; 1 different, and everything was written; 2 trouble, and nothing was written; 3 the device asked for
is not usable; 130 interrupted."""

app = typer.Typer(
    name="graph2torch",
    help="Rebuilds a policy graph (.onnx) and its checkpoint (.pt) as a readable torch module, and proves that it is equal.",
    epilog=EXIT,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """The command with its errors as one paragraph on stderr, and the exit status that goes with them."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            try:
                with warnings.catch_warnings():  # of libraries: our own are part of what is printed
                    warnings.simplefilter("default" if Settings.debug else "ignore")
                    return command(*args, **kwargs)
            finally:
                sys.stdout.flush()  # a full disk or a closed pipe is noticed while it can be told
        except KeyboardInterrupt:
            fail("interrupted; nothing is left half written.", 130)
        except BrokenPipeError:  # who read our output has seen enough
            silence()
            sys.exit(2)
        except (typer.Exit, typer.BadParameter):
            raise
        except Exception as error:
            if Settings.debug:
                raise
            trouble(error)

    return run


NO_MEMORY = ("bad_alloc", "not enough memory", "can't allocate memory", "Failed to allocate memory")  # torch's and onnxruntime's


def trouble(error: Exception) -> NoReturn:
    """Tells the error in one paragraph, and ends."""
    from graph2torch.errors import Graph2TorchError
    from graph2torch.text import one_line

    if isinstance(error, Graph2TorchError):
        fail(str(error), error.exit_status)
    if isinstance(error, MemoryError) or any(words in str(error) for words in NO_MEMORY):
        fail("there is not enough memory for this model; nothing was written. Close other programs, or use a larger machine.", 2)
    what = one_line(f"{type(error).__name__}: {error}")
    if isinstance(error, OSError) and error.filename is None:  # files have names: it is stdout
        silence()
        fail(f"the output can't be printed ({what}). What the command wrote to files is whole; make room and print it again.", 2)
    fail(f"this should not happen: {what}. Please report it with the output of `graph2torch --debug …`.", 2)


def fail(message: str, status: int) -> NoReturn:
    with suppress(OSError):  # nobody listens
        sys.stderr.write(f"graph2torch: {message}\n")
        sys.stderr.flush()
    sys.exit(status)


def silence() -> None:
    """What is still to be printed goes nowhere; else Python would complain at its end."""
    with suppress(OSError):  # it is no file at all, as in a notebook
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Settings:
    """What the options before the command set."""

    debug = False


def version(value: bool) -> None:
    if value:
        from graph2torch import __version__

        typer.echo(f"graph2torch {__version__}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")] = False,
) -> None:
    Settings.debug = debug


RulesOption = Annotated[
    list[Path] | None, typer.Option("--rules", help="A folder with further families of rules; it is run as code.", show_default=False)
]


def precision(value: str | None) -> str | None:
    from graph2torch.precisions import PRECISIONS

    if value is not None and value not in PRECISIONS:
        raise typer.BadParameter(f"{value!r} is none; give {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}.")
    return value


DtypeOption = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        callback=precision,
        help="Of the layers' weights: float32, float16 or bfloat16; default: as the folder stores them.",
        show_default=False,
    ),
]
ThreadsOption = Annotated[int, typer.Option(min=1, max=1024, help="Of torch on the CPU; a small policy is fastest with one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else there.")]

TensorboardOption = Annotated[
    Path | None,
    typer.Option(
        "--tensorboard",
        metavar="DIR",
        help="Write the figures, the weights and the graph for TensorBoard, too; into results/RUN, beside the training's own curves.",
        show_default=False,
    ),
]
DeviceOption = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE", help="cpu, npu, cuda, xpu or mps, or one of several: cuda:1. Never another than this one."),
]


@app.command(short_help="Rebuild a policy as torch code, and prove it equal.", epilog=EXIT)
@guarded
def build(
    model: Annotated[Path, typer.Argument(help="The policy's graph, MODEL.onnx.", show_default=False)],
    checkpoint: Annotated[
        Path | None,
        typer.Argument(help="Its training checkpoint, CHECKPOINT.pt. Without it the weights come from the graph.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The folder to write; default: the model's name without .onnx.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an output folder that graph2torch wrote before.")] = False,
    weights: Annotated[str, typer.Option(help="Whose weights to take: 'checkpoint' or 'onnx'.")] = "checkpoint",
    rules: RulesOption = None,
    device: DeviceOption = "cpu",
    dtype: Annotated[
        str,
        typer.Option(
            metavar="DTYPE",
            callback=precision,
            help="Of the layers' weights as they are written: float32, float16 or bfloat16. What is proved is the float32 network.",
        ),
    ] = "float32",
    threads: ThreadsOption = 1,
    tensorboard: TensorboardOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuild a policy into DIR (model.py, weights.safetensors, rebuilt.onnx, lifted.onnx, report.json, report.html), and print how equal it is."""
    if weights not in ("checkpoint", "onnx"):
        raise typer.BadParameter(f"{weights!r} is none; give 'checkpoint' or 'onnx'.", param_hint="--weights")
    from graph2torch.build import build as run
    from graph2torch.report.facts import facts

    target = output if output is not None else Path(model.stem)
    if tensorboard is not None:
        from graph2torch.board.board import board_of_build, check_board, write_board

        check_board(tensorboard, target)
    events = None
    with Progress(as_json) as note:
        there = asked_for(device, note)
        made = run(
            model,
            checkpoint,
            output,
            force=force,
            weights=weights,  # type: ignore[arg-type]
            rules=tuple(rules or ()),
            device=there,
            dtype=dtype,
            threads=threads,
            progress=note,
        )
        if tensorboard is not None:
            note("writing for TensorBoard")
            events = write_board(board_of_build(made), tensorboard, f"The policy was built in {target}.")
    if as_json:
        print_json(facts(made, {}, target) | {"output": str(target)} | ({"tensorboard": str(events)} if events else {}))
    else:
        from graph2torch.show.build import show_build

        show_build(made, target)
        show_events(events)
    raise typer.Exit(0 if made.equal else 1)


def show_events(events: Path | None) -> None:
    """Where the event file is, if one was asked for."""
    if events is not None:
        from graph2torch.show.page import Page
        from graph2torch.text import printable

        page = Page()
        page.gap()
        page.heading("TensorBoard", f"one more event file in {printable(str(events.parent), 400)}")


def asked_for(device: str, note: Callable[[str], None]) -> Device | None:
    """The device, if it is another than the CPU; torch isn't imported for the CPU alone."""
    if device == "cpu":
        return None
    from graph2torch.devices.device import resolve
    from graph2torch.text import printable

    note(f"trying {printable(device, 20)}")
    return resolve(device)


@app.command(short_help="Tell what an .onnx, a .pt, a pair or a training is.", epilog=EXIT)
@guarded
def inspect(
    file: Annotated[
        Path, typer.Argument(help="A graph (.onnx), a checkpoint (.pt), or the folder of a training (results/RUN).", show_default=False)
    ],
    checkpoint: Annotated[
        Path | None,
        typer.Argument(help="With a graph: its checkpoint, to hold the pair's normaliser against each other.", show_default=False),
    ] = None,
    rules: RulesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what a file is: an .onnx by its contract, blocks and normaliser; a .pt by its modules, step and odd values; or what a training left."""
    from graph2torch.inspect.file import inspect_file
    from graph2torch.show.inspect import show_inspection

    found = inspect_file(file, checkpoint, tuple(rules or ()))
    if as_json:
        print_json(found)
    else:
        show_inspection(found)


VERIFY_EXIT = """Exit status: 0 equal; 1 different; 2 trouble (a file is missing, unreadable or another one; model.py fails); 3 the
device asked for is not usable; 130 interrupted."""


@app.command(short_help="Judge a built policy again, on much more.", epilog=VERIFY_EXIT)
@guarded
def verify(
    folder: Annotated[Path, typer.Argument(help="A folder that build wrote. Its model.py is code and is run.", show_default=False)],
    original: Annotated[
        Path | None,
        typer.Argument(help="The .onnx it was built from; default: where it lay at the build.", show_default=False),
    ] = None,
    samples: Annotated[int, typer.Option(min=0, max=1_000_000, help="Random observations on top of what is always tried.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything that is random.")] = 20240611,
    observations: Annotated[
        Path | None,
        typer.Option("--observations", help="A file of observations to try too: .npz, .npy, .json or .csv.", show_default=False),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0, help="What torch may be off by from onnxruntime, times max(1, largest output).")
    ] = 1e-5,
    rules: RulesOption = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    threads: ThreadsOption = 1,
    tensorboard: TensorboardOption = None,
    as_json: JsonOption = False,
) -> None:
    """Judge a folder that build wrote against its original again, on much more: edges, masks, memory, samples, block by block."""
    from graph2torch.judge.deep import report, verify_folder

    if tensorboard is not None:
        from graph2torch.board.board import board_of_verification, check_board, write_board

        check_board(tensorboard, folder)
    events = None
    with Progress(as_json) as note:
        there = asked_for(device, note)
        found = verify_folder(
            folder,
            original,
            samples=samples,
            seed=seed,
            observations=observations,
            tolerance=tolerance,
            rules=tuple(rules or ()),
            dtype=dtype,
            device=there,
            threads=threads,
            progress=note,
        )
        if tensorboard is not None:
            note("writing for TensorBoard")
            events = write_board(board_of_verification(found), tensorboard)
    if as_json:
        print_json(report(found) | ({"tensorboard": str(events)} if events else {}))
    else:
        from graph2torch.show.verify import show_verification

        show_verification(found)
        show_events(events)
    raise typer.Exit(0 if found.equal else 1)


@app.command(
    short_help="Write the report.html of a built policy again.",
    epilog="Exit status: 0, and the page is written; 1 with --verify if something is different; 2 trouble; 130 interrupted.",
)
@guarded
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that build wrote.", show_default=False)],
    original: Annotated[
        Path | None,
        typer.Argument(help="With --verify: the .onnx it was built from; default: where it lay at the build.", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page to write; default: report.html in the folder.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --output.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Judge the folder first, as verify does, for errors block by block. Runs its model.py.")
    ] = False,
    rules: RulesOption = None,
) -> None:
    """Write report.html of a folder again: verdict, architecture, weights, normaliser and errors as one page to look at."""
    if original is not None and not verify:
        raise typer.BadParameter("is only needed with --verify", param_hint="ORIGINAL")
    from graph2torch.report.folder import report_folder
    from graph2torch.show.report import show_written

    with Progress(False) as note:
        found = None
        if verify:
            from graph2torch.judge.deep import report as to_json
            from graph2torch.judge.deep import verify_folder

            found = verify_folder(folder, original, rules=tuple(rules or ()), progress=note)
        written = report_folder(folder, output, force=force, verification=None if found is None else to_json(found), progress=note)
    show_written(written)
    raise typer.Exit(0 if found is None or found.equal else 1)


@app.command(
    short_help="Write a built policy for a target: ONNX, TorchScript …",
    epilog="Exit status: 0 equal within the tolerance, and written; 1 different, and not written; 2 trouble; 130 interrupted.",
)
@guarded
def export(
    folder: Annotated[Path, typer.Argument(help="A folder that build wrote. Its model.py is code and is run.", show_default=False)],
    original: Annotated[
        Path | None,
        typer.Argument(help="The .onnx it was built from; default: where it lay at the build.", show_default=False),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file to write.", show_default=False)] = ...,  # type: ignore[assignment]
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format", help="onnx, torch-export, aot-inductor or torchscript; default: by the file's ending.", show_default=False
        ),
    ] = None,
    deterministic_only: Annotated[bool, typer.Option("--deterministic-only", help="Without what is drawn at random.")] = False,
    metadata: Annotated[bool, typer.Option("--metadata/--no-metadata", help="Keep the fixed outputs that Unity reads.")] = True,
    opset: Annotated[int | None, typer.Option(min=7, max=25, help="Of an .onnx; default: the original's.", show_default=False)] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, max=65_536, help="Fix the number of agents; default: any.", show_default=False)
    ] = None,
    fp16: Annotated[bool, typer.Option("--fp16", help="Layers of an .onnx in half precision.")] = False,
    exporter: Annotated[str, typer.Option(help="torch's exporter for .onnx: torchscript or dynamo.")] = "torchscript",
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="What may be off, times max(1, largest output); default: 1e-5, with --fp16 1e-2.", show_default=False),
    ] = None,
    rules: RulesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the policy for a target (ONNX for another opset, deterministic, fixed batch, half; torch.export, AOTInductor, TorchScript)."""
    from graph2torch.target.target import Target, export_folder, format_of, report

    target = Target(
        None if kind is None else format_of(output, kind), deterministic_only, metadata, opset, batch, fp16, exporter, tolerance
    )
    with Progress(as_json) as note:
        made = export_folder(folder, output, target, original, force=force, rules=tuple(rules or ()), progress=note)
    if as_json:
        print_json(report(made, output))
    else:
        from graph2torch.show.target import show_export

        show_export(made, output)
    raise typer.Exit(0 if made.equal else 1)


@app.command(
    short_help="Tell in what two graphs or checkpoints differ.",
    epilog="Exit status: 0 equal networks; 1 different; 2 trouble; 130 interrupted.",
)
@guarded
def diff(
    a: Annotated[Path, typer.Argument(help="An .onnx or a .pt.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="Another one, or the other of the two.", show_default=False)],
    run: Annotated[bool, typer.Option("--run/--no-run", help="Run two graphs in onnxruntime on the same inputs.")] = True,
    samples: Annotated[int, typer.Option(min=0, max=10_000, help="Ordinary inputs tried on top of the fixed ones.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of all inputs that are made up.")] = 20240611,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write a page to look at: both sides, and in what they differ.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file of --html.")] = False,
    rules: RulesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell in what two files differ: two graphs of any kind, two checkpoints, or a graph and a checkpoint."""
    from graph2torch.diff.diff import as_json as to_json
    from graph2torch.diff.diff import diff as compare
    from graph2torch.files import check_file, write_file

    if html is not None:
        check_file(html, force, "--html")
    with Progress(as_json) as note:
        found = compare(a, b, rules=tuple(rules or ()), samples=samples, seed=seed, run=run, progress=note)
        if html is not None:
            from graph2torch.report.difference import difference_page

            note("drawing")
            write_file(html, difference_page(found, a, b, tuple(rules or ())).encode(), force, "--html")
    if as_json:
        print_json(to_json(found))
    else:
        from graph2torch.show.diff import show_difference

        show_difference(found)
        if html is not None:
            from graph2torch.show.report import show_written

            show_written(html)
    raise typer.Exit(0 if found.equal else 1)


@app.command(short_help="List the rules, or explain a graph with them.")
@guarded
def rules(
    explain: Annotated[
        Path | None,
        typer.Option(
            "--explain", help="A graph: which rule explains which of its nodes, and what came nearest to the others.", show_default=False
        ),
    ] = None,
    coverage: Annotated[
        Path | None,
        typer.Option("--coverage", help="A folder: how many nodes of each .onnx in it the rules explain.", show_default=False),
    ] = None,
    rules: RulesOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the rules, explain a graph with them, or count what they explain in a folder of graphs."""
    if explain is not None and coverage is not None:
        raise typer.BadParameter("explains one graph, --coverage counts in a folder: give one of them", param_hint="--explain")
    from graph2torch.explain import cover_folder, explain_model, list_rules
    from graph2torch.show.rules import show_coverage, show_explanation, show_rules

    folders = tuple(rules or ())
    show = show_rules if explain is None else show_explanation
    if coverage is not None:
        found, show = cover_folder(coverage, folders), show_coverage
    else:
        found = list_rules(folders) if explain is None else explain_model(explain, folders)
    if as_json:
        print_json(found)
    else:
        show(found)


@app.command(
    short_help="Tell what works on this machine, and what to do about the rest.",
    epilog="Exit status: 0 everything works on the CPU; 2 something doesn't; 3 the device asked for is not usable.",
)
@guarded
def doctor(
    device: Annotated[
        str | None, typer.Option("--device", metavar="DEVICE", help="The device that has to work: cpu, npu, cuda:1 …", show_default=False)
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what this machine can do: versions, devices, onnxruntime, and what to do about what is wrong with them."""
    from graph2torch.devices.doctor import examine, report
    from graph2torch.show.doctor import show_examination

    found = examine(device)
    if as_json:
        print_json(report(found))
    else:
        show_examination(found)
    raise typer.Exit(found.exit_status)


@app.command(
    short_help="Act with a built policy.",
    epilog="Exit status: 0; 1 if another fingerprint was expected; 2 trouble; 3 the device asked for is not usable; 130 interrupted.",
)
@guarded
def run(
    folder: Annotated[Path, typer.Argument(help="The folder that build wrote. Its model.py is code and is run.", show_default=False)],
    obs: Annotated[
        str,
        typer.Option(
            "--observations",
            "--obs",
            help="Observations: 'random', 'zeros', a file (.npz, .npy, .json, .csv), or '-' for JSON lines: stdin to stdout.",
        ),
    ] = "random",
    sample: Annotated[bool, typer.Option("--sample", help="Sampled actions instead of deterministic ones.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**64 - 1, help="Of the samples and of random observations.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="How often to act; default: 1, or all rows of a file.", show_default=False)
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="How many agents act; default: 1, or all rows of a file in one step.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the actions to a .npz, .json, .csv or .jsonl.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the output file.")] = False,
    fingerprint: Annotated[
        bool, typer.Option("--fingerprint", help="Print a fingerprint of the actions; default: of 32 steps of 4 agents.")
    ] = False,
    expect: Annotated[
        str | None, typer.Option(help="With --fingerprint: the one that another machine gave, exact or tolerant.", show_default=False)
    ] = None,
    device: DeviceOption = "cpu",
    dtype: DtypeOption = None,
    threads: ThreadsOption = 1,
    group: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Agents computed at once, 0 for all; with 1 none depends on the others, to the bit. Default: 1 on the CPU, else 0.",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(help="eager, compiled, onnxruntime, or auto: the fastest of those that bench measured here and found right."),
    ] = "eager",
    as_json: JsonOption = False,
) -> None:
    """Act with a policy that was built: print its actions, write them to a file, or answer JSON lines."""
    from graph2torch.act.fingerprint import EXACT, TOLERANT

    if expect is not None and (not fingerprint or not (EXACT.fullmatch(expect) or TOLERANT.fullmatch(expect))):
        raise typer.BadParameter("goes with --fingerprint, and is one that it printed", param_hint="--expect")
    if obs == "-" and (fingerprint or as_json or output is not None or steps is not None or batch is not None):
        raise typer.BadParameter(
            "'-' answers line by line, whatever comes; only --sample, --seed and how to compute go with it", param_hint="--observations"
        )
    from graph2torch.act.actions_file import check_kind, written
    from graph2torch.files import check_file, write_file

    if output is not None:
        check_kind(output)
        check_file(output, force, "--output")
    import torch

    from graph2torch.act.run import Runner, act_on, document
    from graph2torch.devices.device import thread_count
    from graph2torch.engine.memory import keep_freed_memory

    keep_freed_memory()
    with Progress(as_json) as note:
        there = asked_for(device, note)
        torch.set_num_threads(thread_count(threads))
        place: Any = "cpu" if there is None else there.torch
        runner = Runner.load(folder, device=place, dtype=dtype, group=group, engine=engine, progress=note)
    if runner.changed:
        sys.stderr.write(f"graph2torch: {' and '.join(runner.changed)} changed since the build; going on with what is there.\n")
    if obs == "-":
        from graph2torch.act.jsonlines import serve

        with note:
            serve(runner, sys.stdin.buffer, sys.stdout, sample=sample, seed=seed)
        return
    if fingerprint and obs in ("random", "zeros"):
        steps, batch = steps or 32, batch or 4
    with note:  # a compiled engine is made when it is needed
        acted = act_on(runner, obs, steps=steps, batch=batch, sample=sample, seed=seed)
    found = document(runner, folder.resolve().name, acted, simulated=there is not None and there.simulated)
    if output is not None:
        write_file(output, written(output, acted, found), force, "--output")
    agrees = None
    if fingerprint:
        from graph2torch.act.fingerprint import fingerprint as fingerprint_of

        mark = fingerprint_of(acted.actions)
        agrees = None if expect is None else mark.agrees(expect)
        found["fingerprint"] = {**vars(mark), "expected": expect, "agrees": agrees}
        del found["actions"]
    if as_json:
        print_json(found)
    else:
        from graph2torch.show.run import show_actions, show_fingerprint

        (show_fingerprint if fingerprint else show_actions)(found)
    raise typer.Exit(1 if agrees is False else 0)


@app.command(
    short_help="Time a built policy beside onnxruntime.",
    epilog="Exit status: 0; 1 if an engine gave something else than the original; 2 trouble; 3 the device asked for is not usable; 130 interrupted.",
)
@guarded
def bench(
    folder: Annotated[Path, typer.Argument(help="A folder that build wrote. Its model.py is code and is run.", show_default=False)],
    original: Annotated[
        Path | None,
        typer.Argument(help="The .onnx it was built from; default: where it lay at the build.", show_default=False),
    ] = None,
    batch: Annotated[
        list[int] | None,
        typer.Option(min=1, max=2**16, help="Agents that act at once, may be repeated; default: 1, 64 and 1024.", show_default=False),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="How often each engine has its turn.")] = 15,
    threads: Annotated[
        list[int] | None, typer.Option(min=1, max=1024, help="Of each engine on the CPU, may be repeated; default: 1.", show_default=False)
    ] = None,
    compiling: Annotated[
        bool, typer.Option("--compile", help="Compile the policy where it isn't yet, once; some ten seconds for each batch.")
    ] = False,
    device: DeviceOption = "cpu",
    plot: Annotated[
        Path | None, typer.Option("--plot", help="Draw the ratios as well, to an .svg or .png; takes matplotlib.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the picture.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Time a policy that was built beside onnxruntime on the original: latency and throughput, by engine, batch and threads."""
    from graph2torch.files import check_file, write_file
    from graph2torch.show.plot import check_plot
    from graph2torch.show.plot import plot as draw

    if plot is not None:
        check_plot(plot)
        check_file(plot, force, "--plot")
    from graph2torch.bench import BATCHES, bench_folder, report

    with Progress(as_json) as note:
        there = asked_for(device, note)
        found = bench_folder(
            folder,
            original,
            batches=batch or BATCHES,
            thread_counts=threads or (1,),
            rounds=rounds,
            compile=compiling,
            device=there,
            progress=note,
        )
    if plot is not None:
        write_file(plot, draw(found, plot.suffix[1:].lower()), force, "--plot")
    if as_json:
        print_json(report(found))
    else:
        from graph2torch.show.bench import show_bench

        show_bench(found)
    raise typer.Exit(1 if found.differs else 0)


@app.command(
    short_help="Have a built policy try everything it can.",
    epilog="Exit status: 0 no case failed; 1 some did; 2 trouble, and no case was tried; 3 the device asked for is not usable; 130 interrupted.",
)
@guarded
def selftest(
    folder: Annotated[Path, typer.Argument(help="A folder that build wrote. Its model.py is code and is run.", show_default=False)],
    original: Annotated[
        Path | None,
        typer.Argument(help="The .onnx it was built from; default: where it lay at the build.", show_default=False),
    ] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Write a line for each case to this file.", show_default=False)] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the log.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of everything that is random.")] = 20240611,
    rules: RulesOption = None,
    device: DeviceOption = "cpu",
    threads: ThreadsOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Have a policy that was built try everything it can: acting, sampling, memory, masks, half precision, re-export, the device."""
    from graph2torch.files import check_file, write_file

    if log is not None:
        check_file(log, force, "--log")
    from graph2torch.selftest.selftest import log as log_of
    from graph2torch.selftest.selftest import report
    from graph2torch.selftest.selftest import selftest as try_all

    with Progress(as_json) as note:
        there = asked_for(device, note)
        found = try_all(folder, original, device=there, seed=seed, rules=tuple(rules or ()), threads=threads, progress=note)
    if log is not None:
        write_file(log, log_of(found).encode("utf-8", "backslashreplace"), force, "--log")
    if as_json:
        print_json(report(found))
    else:
        from graph2torch.show.selftest import show_selftest

        show_selftest(found)
    raise typer.Exit(0 if found.passed else 1)


@app.command(
    short_help="Show a built policy in the browser, or in Netron.",
    epilog="Exit status: 0; 2 trouble. What is served ends with Ctrl-C, which is no trouble.",
)
@guarded
def view(
    folder: Annotated[Path, typer.Argument(help="A folder that build wrote.", show_default=False)],
    netron: Annotated[bool, typer.Option("--netron", help="Its architecture, lifted.onnx, in Netron instead of its report.")] = False,
    port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            help="Serve it to this machine at this port, 0 for any; default: the report is opened as a file.",
            show_default=False,
        ),
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Look at a policy that was built: its report in the browser, or its architecture in Netron."""
    from graph2torch.view import until_ended, viewed

    with until_ended() as wait, viewed(folder, netron, port, browser) as found:
        if as_json:
            print_json({"file": str(found.file), "url": found.url, "served": found.served, "not_opened": found.unopened or None})
        else:
            from graph2torch.show.view import show_view

            show_view(found)
        sys.stdout.flush()
        if found.served:
            wait()


# ---------------------------------------------------------------------------------------------- running it
def print_json(document: Any) -> None:
    sys.stdout.write(json.dumps(document, indent=1, ensure_ascii=True, allow_nan=False) + "\n")


class Progress:
    """A line on stderr that says what is going on, on a terminal only."""

    def __init__(self, quiet: bool) -> None:
        self.shown = not quiet and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __call__(self, text: str) -> None:
        if self.shown:
            sys.stderr.write(f"\r\x1b[K{text} …")
            sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def open_streams() -> None:
    """Closed standard streams are opened on the null device: files must not take their numbers, nor `print` their place.

    What a stream's encoding doesn't have is escaped instead of being an error.
    """
    while os.open(os.devnull, os.O_RDWR) <= 2:  # takes the lowest free number
        pass
    if sys.stdin is None:  # which typeshed doesn't know of
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: PTH123, SIM115
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Runs the command line."""
    gc.set_threshold(50_000)  # imports make many objects that stay: looking through them every 700 is a twentieth of a short command
    open_streams()
    watch()
    try:
        app()
    except SystemExit as end:
        unwatch()
        if isinstance(end.__context__, BrokenPipeError):  # of --help: the library's 1 would be "different"
            leave(2)
        if isinstance(end.code, int):
            leave(end.code)
        raise
    except OSError as error:  # --help, --version or what is wrong with the arguments can't be printed
        unwatch()
        if Settings.debug:
            raise
        with suppress(SystemExit):
            trouble(error)
        leave(2)
    finally:
        unwatch()


def leave(status: int) -> NoReturn:
    """Ends the process. What was printed is out and exit handlers run, but the interpreter isn't taken apart piece by piece first.

    That takes a tenth of a short command, and nothing is left that would need it.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
