"""Texts in the notation, valid ones with letters and words left out, put in, exchanged, doubled."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import derivatrix as dx
from derivatrix.compiler.frontends.function import Function
from derivatrix.compiler.frontends.notation.declaration import split_dims
from tests.campaign.hostile_case import CODE, Case
from tests.identities import IDENTITIES

WORDS = (
    *"+-*/^'()[],;:.\"@=\\{}%#!?~$&|_ \t\n",
    *(".*", "./", ".^", "**", "//", "1e400", "1e-400", "1e999999999", "0", "-1", "2.5", "9" * 5000),
    *(
        "eye",
        "ones",
        "tr(",
        "inv(",
        "sum(",
        "einsum(",
        "kron(",
        "expm(",
        "det(",
        "X",
        "x",
        "n",
        "pi",
    ),
    *('"ij,jk->ik"', '"', "X[0]", "[1:]", "''", "^0.5", "^-1", "^1000", "^9^9^9^9", "é", "ﬁ", "\0"),
    *("’", "−", "∞", "\u200b", "\ud800", "lambda", "None", "__class__", *CODE),
)
CUT = re.compile(r"\w+|\s+|\.[*/^]|.", re.DOTALL)
GENERATED = 0.02
"""The part of the texts whose modules are made, which takes as long as reading a hundred."""


def cases(generator: random.Random, count: int) -> Iterator[Case]:
    """Texts, some of them whole."""
    for _ in range(count):
        identity = generator.choice(IDENTITIES)
        dims = split_dims(identity.dims)
        text = identity.text
        for _ in range(generator.choice((0, 1, 1, 1, 2, 3, 8))):
            text = changed(generator, text)
        if generator.random() < 0.2:
            name = generator.choice([*dims])
            dims[name] = changed(generator, dims[name])
        yield case(text, dims, generator.random() < GENERATED)


def case(text: str, dims: dict[str, str], generates: bool = False) -> Case:
    """A text with its inputs as a function."""
    label = f"parse({ascii(text)[:200]}, {ascii(dims)[:200]})"
    return Case(label, lambda: text_function(text, dims), None, generates)


def text_function(text: str, dims: dict[str, str]) -> Function:
    return dx.function("f", list(dims), dx.parse(text, **dims))


def changed(generator: random.Random, text: str) -> str:
    """The text with one letter or word changed."""
    parts = list(text) if generator.random() < 0.5 else CUT.findall(text)
    if not parts:
        return generator.choice(WORDS)
    at, other = generator.randrange(len(parts)), generator.randrange(len(parts))
    match generator.randrange(6):
        case 0:
            del parts[at]
        case 1:
            parts.insert(at, generator.choice(WORDS))
        case 2:
            parts[at], parts[other] = parts[other], parts[at]
        case 3:
            parts.insert(at, parts[other])
        case 4:
            parts[at] = generator.choice(WORDS)
        case _:
            parts[at:at] = parts[min(at, other) : max(at, other) + 1]
    return "".join(parts)
