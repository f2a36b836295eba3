"""The fields of requests, checked on arrival: only short texts and numbers are passed on."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from derivatrix.compiler.ir.shown import shown
from derivatrix.runtime.errors import DeclarationError, ShapeError

MAX_TEXT_LETTERS = 4000
MAX_INPUTS = 26
MAX_FIELD_LETTERS = 200

Fields = Mapping[str, Any]


def request_fields(name: str, body: bytes) -> Fields:
    """Read the fields of a request of this name: `text`, `inputs` (sizes and structure by name),
    `wrt` (a list of names, empty if missing), `guessed` (names of inputs whose sizes may be changed
    to fit the text), and for "structure" `sizes` (numbers by name).

    Raises DeclarationError for a body that is not a JSON object, and for a missing or wrong field;
    ShapeError for sizes that are not numbers.
    """
    try:
        data = json.loads(body)
    except RecursionError as error:
        raise DeclarationError("a request is an object of JSON, nested less deeply") from error
    except ValueError as error:
        raise DeclarationError(f"a request is an object of JSON: {error}") from error
    if not isinstance(data, dict):
        raise DeclarationError(f"a request is an object of JSON, not {shown(data)}")
    text, inputs = data.get("text"), data.get("inputs")
    names = {"wrt": data.get("wrt", []), "guessed": data.get("guessed", [])}
    if not isinstance(text, str) or len(text) > MAX_TEXT_LETTERS:
        raise DeclarationError(
            f"text is an expression of at most {MAX_TEXT_LETTERS} letters, not {shown(text)}"
        )
    if not isinstance(inputs, dict) or len(inputs) > MAX_INPUTS or not _short(inputs.values()):
        raise DeclarationError(
            f"inputs are at most {MAX_INPUTS} names with sizes, not {shown(inputs)}"
        )
    for field, value in names.items():
        if not isinstance(value, list) or not _short(value):
            raise DeclarationError(f"{field} is a list of names, not {shown(value)}")
    fields = {"text": text, "inputs": inputs, **names}
    return {**fields, "sizes": _sizes(data.get("sizes"))} if name == "structure" else fields


def _sizes(sizes: object) -> dict[str, int]:
    if not isinstance(sizes, dict) or not all(type(size) is int for size in sizes.values()):
        raise ShapeError(f"sizes are whole numbers by name, not {shown(sizes)}")
    return sizes


def _short(values: Collection[object]) -> bool:
    return all(isinstance(value, str) and len(value) < MAX_FIELD_LETTERS for value in values)
