"""The docstrings of public functions."""

# mypy: allow-untyped-defs

from .kinds import SUMMARIES
from .signature import tuple_text

_FORMULAS_OF = {
    "value_and_gradient": ("value", "gradient"),
    "jacobian_operator": ("jacobian",),
    "hessian_operator": ("hessian",),
}
"""Whose formulas those functions show that have none of their own."""


def documentation(name, module, parts):
    """What a public function computes, takes, returns and raises; parts: its `_Parts`."""
    filled = zip(parts.returned.places, parts.signature.outputs.values(), strict=False)
    places = [(f"result{place.removeprefix('out')}", shape) for place, shape in filled]
    out = [f"    {parts.out}: where results are put; new arrays by default"]
    result = ["", "Result", *map(_line, places)]
    heading = "Formulas, for one sample" if module.names["OUTPUT"]["batched"] else "Formulas"
    needed = "".join(f", or sizes without {each}" for each in module.requirements)
    lines = [
        *(SUMMARIES[name], "", heading, *_formulas(name, module.names["FORMULAS"])),
        *("", "Arguments", *map(_line, parts.signature.expected)),
        *([] if name.endswith("_operator") else [*out, *result]),
        *("", "Errors", "    TypeError: an argument holds no real numbers"),
        f"    ValueError: an argument has another shape{needed}",
        *["    numpy.linalg.LinAlgError: an operation fails, as for a singular matrix"][
            : module.fails
        ],
    ]
    return "\n".join(lines) + "\n"


def _line(entry):
    """An array's name with its shape."""
    name, shape = entry
    return f"    {name}: shape {tuple_text(shape)}"


def _formulas(name, formulas):
    """The formulas as lines, each with the inputs that it belongs to."""
    for kind in _FORMULAS_OF.get(name, (name,)):
        for key, styles in formulas.get(kind, {}).items():
            yield f"    {f'by {key}' if key else kind}: {styles['unicode']}"
