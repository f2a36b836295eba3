"""The docstrings of public functions."""

# mypy: allow-untyped-defs

from .signature import tuple_text

SUMMARIES = {
    "value": "The value.",
    "vjp": "The cotangents of the inputs, given the cotangent of the value.",
    "jvp": "The tangent of the value, given the tangents of the inputs.",
    "jacobian": "The Jacobian J[out..., in...], of shape (*out.shape, *in.shape).",
    "gradient": "The gradient.",
    "value_and_gradient": "The value and the gradient.",
    "hessian": "The Hessian H[in..., in...].",
    "hvp": "The Hessian times the tangents of the inputs.",
    "jacobian_operator": "The Jacobian as a linear map, an array only where it is asked for.",
    "hessian_operator": "The Hessian as a linear map, an array only where it is asked for.",
}
"""First lines of the docstrings."""
_FORMULAS_OF = {
    "value_and_gradient": ("value", "gradient"),
    "jacobian_operator": ("jacobian",),
    "hessian_operator": ("hessian",),
}
"""The functions whose formulas a function without formulas shows."""


def documentation(name, module, parts, can_fail):
    """Write the docstring of the public function `name`. parts: its `_Parts`; can_fail: whether it
    can raise LinAlgError."""
    shapes = map(parts.public_shape, parts.signature.outputs.values())
    results = [
        (f"result{place.removeprefix('out')}", shape)
        for place, shape in zip(parts.returned.places, shapes, strict=False)
    ]
    out = [f"    {parts.out_parameter}: where results are put; new arrays by default"]
    is_batched = any(entry["batched"] for entry in module.names["INPUTS"])
    heading = "Formulas, for one sample" if is_batched else "Formulas"
    requirements = "".join(f", or sizes without {text}" for text in module.requirements)
    failure = ["    numpy.linalg.LinAlgError: an operation fails, as for a singular matrix"]
    lines = [
        *(SUMMARIES[name], "", heading, *_formulas(name, module.names["FORMULAS"])),
        *("", "Arguments", *map(_shape_line, parts.expected)),
        *(["    cotangent is a tuple of these; None stands for zeros"] if parts.cotangents else []),
        *([] if name.endswith("_operator") else [*out, "", "Result", *map(_shape_line, results)]),
        *("", "Errors", "    TypeError: an argument holds no real numbers"),
        f"    ValueError: an argument has another shape{requirements}",
        *(failure if can_fail else []),
    ]
    return "\n".join(lines) + "\n"


def _shape_line(entry):
    """Write a line with the name and shape of an array."""
    name, shape = entry
    return f"    {name}: shape {tuple_text(shape)}"


def _formulas(name, formulas):
    """Write a line for each formula, with the input that it belongs to."""
    for kind in _FORMULAS_OF.get(name, (name,)):
        for key, styles in formulas.get(kind, {}).items():
            yield f"    {f'by {key}' if key else kind}: {styles['unicode']}"
