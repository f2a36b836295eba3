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
    """Write an assignment that unpacks a value to names."""
    targets = f"{', '.join(names)}{',' if len(names) == 1 else ''}"
    if len(targets) + len(value) > 97:
        targets = "\n".join(wrapped(f"({targets})", 96 - len(value), "    "))
    return f"{targets} = {value}"


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


def code_lines(line: str, width: int = 96) -> list[str]:
    """Break a long line of code at spaces within brackets, the outermost ones that fit, but not in
    strings."""
    spaces, indent, start = _spaces(line), "", 0
    further = " " * (len(line) - len(line.lstrip()) + 8)
    lines = []
    while len(indent) + len(line) - start > width:
        end = start + width - len(indent)
        later = [(place, depth) for place, depth in spaces if place > start]
        fitting = [(place, depth) for place, depth in later if place <= end] or later[:1]
        if not fitting:
            break
        place, _ = min(fitting, key=lambda space: (space[1], -space[0]))
        lines.append(indent + line[start:place])
        start, indent = place + 1, further
    return [*lines, indent + line[start:]]


def _spaces(line: str) -> list[tuple[int, int]]:
    """List the spaces within brackets and outside of strings: (place, number of brackets around
    it)."""
    spaces, depth, quote = [], 0, ""
    for place, letter in enumerate(line):
        if letter in ("'", '"') and quote in ("", letter):
            quote = "" if quote else letter
        elif not quote:
            depth += (letter in "([{") - (letter in ")]}")
            if letter == " " and depth:
                spaces.append((place, depth))
    return spaces
