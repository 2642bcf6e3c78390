"""What a kind of case is: files made from a source of random numbers, and what is done with them."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias


class WrongError(Exception):
    """A case that shows a fault although nothing was raised: unsafe text, half an output, a level that isn't true."""


@dataclass(frozen=True)
class Case:
    """files: by name, written to an empty folder; run: what is done there, which gives a word for how it went.

    It may raise the package's own errors: they are outcomes too.

    makes: names that may stand in the folder afterwards, besides the files
    """

    files: Mapping[str, bytes]
    run: Callable[[Path], str]
    makes: tuple[str, ...] = ()


Made: TypeAlias = "Callable[[random.Random], Case]"


@dataclass(frozen=True)
class Kind:
    """make:   the case of a number, from random numbers of its own
    share:  of all cases, relative to the other kinds
    memory: bytes by which one case may raise the process's peak
    """

    make: Made
    share: float
    memory: int = 2**29
