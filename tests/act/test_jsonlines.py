"""A policy as a filter: a line in, a line out; and lines that are none."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph2torch.act.jsonlines import MAX_LINE, serve
from graph2torch.act.run import Runner
from graph2torch.build import build
from graph2torch.errors import ActingError, ObservationError
from tests.models import FAMILIES, save_pair, tiny_policy

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    root = tmp_path_factory.mktemp("built")
    made = {}
    for name in ("lstm", "hybrid"):
        (root / name).mkdir()
        path, _ = save_pair(root / name, tiny_policy(**FAMILIES[name]))
        build(path, output=root / name / "out")
        made[name] = root / name / "out"
    return made


def answers(folder: Path, *lines: object, sample: bool = False) -> list[dict[str, Any]]:
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    out = io.StringIO()
    serve(Runner.load(folder), io.BytesIO(text.encode("utf-8", "surrogateescape")), out, sample=sample)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_line_is_an_agent_or_many(folders: Mapping[str, Path]) -> None:
    row = [0.1, -0.2, 0.3, 0.4]
    one, two, named = answers(
        folders["hybrid"], {"obs_0": row}, {"obs_0": [row, row]}, {"obs_0": row, "agent": 7, "action_masks": [1, 0, 0, 0, 1]}
    )
    assert np.shape(one["continuous_actions"]) == (2,) and np.shape(two["continuous_actions"]) == (2, 2)
    assert two["continuous_actions"][0] == one["continuous_actions"]
    assert named["agent"] == 7 and named["discrete_actions"] == [0, 1]


def test_memory_goes_on_from_line_to_line_until_it_is_reset(folders: Mapping[str, Path]) -> None:
    row = [0.1, -0.2, 0.3, 0.4]
    first, second, again, other = answers(
        folders["lstm"], {"obs_0": row}, "\n", {"obs_0": row}, {"obs_0": row, "reset": True}, {"obs_0": row, "agent": 3}
    )
    assert first != second and first == again and other["continuous_actions"] == first["continuous_actions"]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("nothing\n", "not JSON"),
        ("[1, 2]\n", "no JSON object"),
        ('{"obs_0": [1, 2, 3]}\n', "[n, 4]"),
        ('{"obs_0": [1, 2, 3, NaN]}\n', "NaN"),
        ('{"obs_0": [1, 2, 3, Infinity]}\n', "Infinity"),
        ('{"obs_0": [1, 2, 3, 1e999]}\n', "finite"),
        ('{"obs_0": [1, 2, 3, ' + "9" * 5000 + "]}\n", "finite"),
        ('{"obs_0": [1, 2, 3, "4"]}\n', "no number"),
        ('{"obs_0": [1, 2, 3, {}]}\n', "no number"),
        ('{"obs_0": [1, 2, 3, 4], "obs_0": [1, 2, 3, 4]}\n', "twice"),
        ('{"obs_0": [1, 2, 3, 4], "obs_\\u001b[31m": 1}\n', "no input"),
        ('{"obs_0": ' + "[" * 50_000 + "\n", "nested"),
        ('{"obs_0": [1, 2, 3, 4], "agent": -1}\n', "agent"),
        ('{"obs_0": [1, 2, 3, 4], "agent": [1, 2]}\n', "as many agents"),
        ('{"obs_0": [1, 2, 3, 4], "reset": 1}\n', "true or false"),
        ("\udcff\udcfe\n", "UTF-8"),
        ('{"obs_0": [1, 2, 3, 4], "action_masks": [0, 0, 0, 1, 1]}\n', "no option of branch 0"),
        ("{" + " " * (MAX_LINE + 10) + "}\n", "limit"),
    ],
)
def test_a_bad_line_is_named_by_its_number(folders: Mapping[str, Path], line: str, word: str) -> None:
    good = '{"obs_0": [1, 2, 3, 4]}\n'
    with pytest.raises((ObservationError, ActingError)) as told:
        answers(folders["hybrid"], good, good, line)
    assert "line 3 of the input" in str(told.value) and word in str(told.value), str(told.value)[:400]
    assert "\x1b" not in str(told.value) and len(str(told.value)) < 1500


def test_every_answer_is_there_before_the_next_line_is_read(folders: Mapping[str, Path]) -> None:
    command = [sys.executable, str(ROOT / "cli.py"), "run", str(folders["hybrid"]), "--observations", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout and process.stderr
        for _ in range(3):
            process.stdin.write('{"obs_0": [1, 2, 3, 4]}\n')
            process.stdin.flush()
            assert set(json.loads(process.stdout.readline())) == {"continuous_actions", "discrete_actions"}
        process.stdin.write("no\n")
        process.stdin.close()
        assert process.wait(60) == 2
        assert process.stderr.read().startswith("graph2torch: line 4 of the input")


@pytest.mark.skipif(os.name != "posix", reason="closes a file by its number")
def test_no_input_is_no_line(folders: Mapping[str, Path]) -> None:
    """Nothing to read, and not even a stream to read it from."""
    command = [sys.executable, str(ROOT / "cli.py"), "run", str(folders["hybrid"]), "--observations", "-"]
    done = subprocess.run(command, capture_output=True, text=True, preexec_fn=lambda: os.close(0), check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(os.name != "posix", reason="the exit status of a pipe that nobody reads")
def test_who_reads_the_answers_may_leave(folders: Mapping[str, Path]) -> None:
    command = [sys.executable, str(ROOT / "cli.py"), "run", str(folders["hybrid"]), "--observations", "-"]
    reader, writer = os.pipe()
    os.close(reader)
    text = '{"obs_0": [1, 2, 3, 4]}\n' * 3
    done = subprocess.run(command, input=text, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (2, "")
