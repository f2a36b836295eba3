"""Python texts that all parts of a generated module use."""

from __future__ import annotations

import textwrap

MAX_LITERAL_LENGTH = 110
"""Most characters of a literal, with its indentation, on one line."""


def quoted(text: str) -> str:
    """Escape a text for triple quotes."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def literal(value: object, indent: int = 0) -> str:
    """Write a Python literal, with one entry a line if it is too long for one line; the only entry
    of a dictionary is on the line of its brackets."""
    text = repr(value)
    if len(text) + indent <= MAX_LITERAL_LENGTH or not isinstance(value, dict | tuple | list):
        return text
    if isinstance(value, dict) and len(value) == 1:
        ((key, entry),) = value.items()
        return f"{{{key!r}: {literal(entry, indent)}}}"
    space = " " * (indent + 4)
    if isinstance(value, dict):
        entries = [f"{space}{k!r}: {literal(v, indent + 4)},\n" for k, v in value.items()]
    else:
        entries = [f"{space}{literal(entry, indent + 4)},\n" for entry in value]
    empty = repr(type(value)())
    return f"{empty[0]}\n{''.join(entries)}{' ' * indent}{empty[1]}"


def wrapped(text: str, width: int, indent: str = "") -> list[str]:
    """Break a text at spaces into lines, all but the first one with an indentation."""
    return textwrap.wrap(
        text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def assignment(names: list[str], value: str) -> str:
    """Write an assignment of the parts of a value to names."""
    left = f"{', '.join(names)}{',' if len(names) == 1 else ''}"
    if len(left) + len(value) > 97:
        left = "\n".join(wrapped(f"({left})", 96 - len(value), "    "))
    return f"{left} = {value}"


def call_lines(name: str, arguments: list[str], end: str = "", width: int = 96) -> list[str]:
    """Write a call, with as many arguments a line as `width` allows. An argument may be a part of
    an inner call."""
    lines = [f"{name}({arguments[0]}" if arguments else f"{name}("]
    for argument in arguments[1:]:
        if len(lines[-1]) + len(argument) + len(end) + 3 <= width:
            lines[-1] += f", {argument}"
        else:
            lines[-1] += ","
            lines.append(f"        {argument}")
    return [*lines[:-1], f"{lines[-1]}){end}"]
