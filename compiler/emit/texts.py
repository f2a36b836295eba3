"""Texts of Python that every part of a generated module has."""

from __future__ import annotations

WIDTH = 130


def quoted(text: str) -> str:
    """A text for between triple quotes."""
    return text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')


def literal(value: object, indent: int = 0) -> str:
    """A Python literal, one entry a line where it is too long for one line; what is alone in a
    dictionary is on the line of its brackets."""
    text = repr(value)
    if len(text) + indent <= WIDTH - 20 or not isinstance(value, dict | tuple | list):
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


def call_lines(name: str, arguments: list[str], end: str = "", width: int = 96) -> list[str]:
    """A call, with as many arguments a line as there is room for. An argument may be a part of one
    that is a call itself."""
    lines = [f"{name}({arguments[0]}" if arguments else f"{name}("]
    for argument in arguments[1:]:
        if len(lines[-1]) + len(argument) + len(end) + 3 <= width:
            lines[-1] += f", {argument}"
        else:
            lines[-1] += ","
            lines.append(f"        {argument}")
    return [*lines[:-1], f"{lines[-1]}){end}"]
