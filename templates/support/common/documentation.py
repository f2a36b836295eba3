"""The docstrings of public functions."""

# mypy: allow-untyped-defs

from .kinds import SUMMARIES
from .signature import tuple_text

_FORMULAS_OF = {
    "value_and_gradient": ("value", "gradient"),
    "jacobian_operator": ("jacobian",),
    "hessian_operator": ("hessian",),
}
"""The functions whose formulas a function without formulas shows."""


def documentation(name, module, parts):
    """The docstring of the public function `name`; `parts`: its `_Parts`."""
    outputs = zip(parts.returned.places, parts.signature.outputs.values(), strict=False)
    results = [(f"result{place.removeprefix('out')}", shape) for place, shape in outputs]
    out = [f"    {parts.out_parameter}: where results are put; new arrays by default"]
    heading = "Formulas, for one sample" if module.names["OUTPUT"]["batched"] else "Formulas"
    requirements = "".join(f", or sizes without {text}" for text in module.requirements)
    failure = ["    numpy.linalg.LinAlgError: an operation fails, as for a singular matrix"]
    lines = [
        *(SUMMARIES[name], "", heading, *_formulas(name, module.names["FORMULAS"])),
        *("", "Arguments", *map(_shape_line, parts.signature.expected)),
        *([] if name.endswith("_operator") else [*out, "", "Result", *map(_shape_line, results)]),
        *("", "Errors", "    TypeError: an argument holds no real numbers"),
        f"    ValueError: an argument has another shape{requirements}",
        *(failure if module.fails else []),
    ]
    return "\n".join(lines) + "\n"


def _shape_line(entry):
    """A line with the name and shape of an array."""
    name, shape = entry
    return f"    {name}: shape {tuple_text(shape)}"


def _formulas(name, formulas):
    """A line for each formula, with the input that it belongs to."""
    for kind in _FORMULAS_OF.get(name, (name,)):
        for key, styles in formulas.get(kind, {}).items():
            yield f"    {f'by {key}' if key else kind}: {styles['unicode']}"
