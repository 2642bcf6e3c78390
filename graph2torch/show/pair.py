"""What is said of a pair of graph and checkpoint: the verdict, its likely cause, steps and configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from graph2torch.pair import CONFIGURATION
from graph2torch.text import printable, quoted

from .page import Page


def show_cause(page: Page, pair: Mapping[str, Any], apart: bool, far: bool) -> None:
    """Why the two may disagree, and which .pt beside the checkpoint fits; `apart`: their tensors do, `far`: further than a race explains."""
    if pair["reason"]:
        page.line(f"The first place: {printable(pair['reason'], 600)}.")
    elif apart and far:
        page.line("That is too far for a race between saving and exporting: the two are of different steps or of different trainings.")
    elif apart and pair["verdict"] == "drift":
        threaded = (pair["configuration"] or {}).get("settings", ())
        stated = next((s["stated"] for s in threaded if s["name"] == "threaded"), None)
        told = "" if stated is None else f"; {CONFIGURATION} says that this one had {'them' if stated else 'none'}"
        page.line(f"Differences of this size come about when a training with threads saves the .pt and the .onnx a moment apart{told}.")
    if match := pair["match"]:
        step = "" if match["step"] is None else f" (step {match['step']:,})"
        page.line(f"{printable(match['file'])} beside the checkpoint{step} holds the graph's numbers: give that one.", style="bold")
    elif pair["tried"]:
        page.line(f"None of the other .pt beside the checkpoint holds the graph's numbers ({pair['tried']} tried).")


def show_beside(page: Page, pair: Mapping[str, Any], onnx_name: str, checkpoint_name: str) -> None:
    """Steps and configuration.yaml, as far as there are any."""
    steps = pair["steps"]
    places = ((steps["graph"], onnx_name), (steps["checkpoint"], checkpoint_name), (steps["trained"], "global_step"))
    told = [(step, f"{step:,} in {printable(place, 60)}") for step, place in places if step is not None]
    if told:
        agree = "" if len(told) < 2 else ": they agree" if len({step for step, _ in told}) == 1 else ": they do not agree"
        page.line(f"steps: {', '.join(words for _, words in told)}{agree}")
    if steps["normalizers"]:
        counted = ", ".join(f"{count:,} in {printable(module)}" for module, count in steps["normalizers"])
        page.line(f"normalization_steps, a count of its own: {counted}")
    configuration = pair["configuration"]
    if configuration and configuration["trouble"]:
        page.line(f"{CONFIGURATION} {printable(configuration['trouble'], 300)}: not held against the graph", style="yellow")
    elif configuration:
        settings = configuration["settings"]
        page.line(f"{CONFIGURATION}, behaviour {quoted(configuration['behavior'])}, against the graph:")
        labels = {True: "agrees", False: "DISAGREES", None: "can't be told"}
        rows = [(label, _settings(s for s in settings if s["agrees"] is agrees)) for agrees, label in labels.items()]
        page.table([row for row in rows if row[1]], indent=4)


def _settings(settings: Iterable[Mapping[str, Any]]) -> str:
    """ "normalize true, num_layers 3 (2 in the graph)"."""
    return ", ".join(
        f"{s['name']} {_setting(s['stated'])}" + (f" ({_setting(s['found'])} in the graph)" if s["agrees"] is False else "")
        for s in settings
    )


def _setting(value: Any) -> str:
    return printable(json.dumps(value), 60) if not isinstance(value, str) else printable(value, 60)
