"""Names of any kind, shown and written: nothing acts on a terminal, nothing is code, everything is what it was."""

from __future__ import annotations

import ast
import keyword
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph2torch.text import MEMBERS, RESERVED, docstring, identifier, literal, one_line, printable, quoted
from tests.commands import unsafe

ANY = st.text(st.characters(), max_size=300)  # surrogates included
UGLY = st.lists(
    st.sampled_from(
        [
            '"',
            '"""',
            "'",
            "\\",
            "\\\\",
            "\n",
            "\r",
            "\0",
            "{",
            "}",
            "\x1b[31m",
            "\u202e",
            "\u2028",
            "\ud800",
            "ü",
            "😀",
            "\\N{DIGIT ONE}",
            "\x7f",
            "a",
            " ",
        ]
    ),
    max_size=20,
).map("".join)
NAMES = ANY | UGLY


@settings(max_examples=300)
@given(NAMES)
def test_printable_is_one_safe_short_line(name: str) -> None:
    for shown in (printable(name), quoted(name), one_line(name)):
        assert not unsafe(shown) and "\n" not in shown
        shown.encode("utf-8")
        assert len(shown) <= 10 * 302
    if name.isascii() and name.isprintable() and len(name) <= 120:
        assert printable(name) == name


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("obs_0", "obs_0"),
        ("Möwe/Ähre", "Möwe/Ähre"),
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("abc\u202ecba", "abc\\u202ecba"),
        ("\udcff.onnx", "\\udcff.onnx"),
        ("a\nb\0", "a\\nb\\x00"),
        ("x" * 500, "x" * 60 + "…" + "x" * 59),
    ],
)
def test_printable_as_it_looks(name: str, shown: str) -> None:
    assert printable(name) == shown


@settings(max_examples=300)
@given(NAMES)
def test_docstring_says_the_text_and_nothing_else(text: str) -> None:
    source = f'"""{docstring(text)}\n"""\n'
    source.encode("utf-8")
    assert not unsafe(source)
    module = ast.parse(source)
    assert len(module.body) == 1
    assert ast.get_docstring(module, clean=False) == text + "\n"


@settings(max_examples=300)
@given(NAMES)
def test_literal_is_the_text_in_ascii(text: str) -> None:
    source = literal(text)
    assert source.isascii() and source.isprintable()
    assert ast.literal_eval(source) == text


@settings(max_examples=300)
@given(NAMES | st.sampled_from(sorted(RESERVED | MEMBERS | set(keyword.kwlist))), st.sets(NAMES.map(identifier), max_size=5))
def test_identifier_is_one_that_hides_nothing(name: str, taken: set[str]) -> None:
    word = identifier(name, taken)
    assert word.isidentifier() and word.isascii() and len(word) < 80
    assert not word.startswith("_")
    assert not keyword.iskeyword(word) and not keyword.issoftkeyword(word)
    assert word not in taken and word not in RESERVED
    assert unicodedata.normalize("NFKC", word) == word  # as Python reads it


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("obs_0", "obs_0"),
        ("my-output.1", "my_output_1"),
        ("a.b", "a_b"),
        ("Größe", "Groe"),
        ("é", "e"),
        ("1st", "value_1st"),
        ("", "value"),
        ("../..", "value"),
        ("日本", "value"),
        ("class", "class_"),
        ("None", "None_"),
        ("match", "match_"),
        ("__class__", "class_"),
        ("self", "self_"),
        ("torch", "torch_"),
        ("input", "input_"),
        ("METADATA", "METADATA_"),
        ("_", "value"),
        ("x" * 100_000, "x" * 60),
    ],
)
def test_identifier_as_it_looks(name: str, word: str) -> None:
    assert identifier(name) == word


def test_identifiers_that_collide_are_numbered() -> None:
    taken: set[str] = set()
    for name in ("a.b", "a_b", "a/b", "a b"):
        taken.add(identifier(name, taken))
    assert taken == {"a_b", "a_b_2", "a_b_3", "a_b_4"}


def test_members_are_those_of_torchs_modules() -> None:
    import torch

    module = torch.nn.Module()
    missing = {name for name in {*dir(module), *vars(module)} if not name.startswith("_")} - MEMBERS
    assert not missing, "this torch has more: add them"
