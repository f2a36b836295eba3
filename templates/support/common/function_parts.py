"""Texts of public functions: their parts, their docstrings, and their compilation into a module."""

# mypy: allow-untyped-defs

import linecache

from .signature import BATCH_AXES, tuple_text

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


class _Parts:
    """The parts of a public function's text. The local variable of a size has its name, that of a
    result is `_array_NAME`; `_axes` are the batch axes, and `_results` the results with these.

    has_batch: whether the function has inputs with batch axes. cotangents: the last inputs, which
    the public function takes as one tuple `cotangent`, with their names in messages."""

    def __init__(self, signature, returned, has_batch, cotangents=()):
        self.signature, self.returned, self.cotangents = signature, returned, dict(cotangents)
        self.variables = [signature.variable(name) for name in signature.inputs]
        shapes = zip(self.variables, signature.inputs.values(), strict=True)
        self.array_inputs = [name for name, shape in shapes if shape]
        self.outputs = [f"_array_{name}" for name in signature.outputs]
        self.output_shapes = [tuple_text(shape) for shape in signature.outputs.values()]
        axes = {"batch": "*_axes"} if has_batch else {}
        self.result_shapes = [
            tuple_text(axes.get(length, length) for length in shape)
            for shape in signature.outputs.values()
        ]
        self._batch = {"batch": BATCH_AXES} if has_batch else {}
        self.kernel_arguments = ", ".join([*self.variables, *self.outputs])
        arrays = self.array_inputs
        self.dtype = f"{arrays[0]}.dtype" if arrays else f"_real({self.variables[0]})"
        self.out = signature.variable("out")

    def public_shape(self, shape):
        """Write the shape of an argument or a result, with all batch axes."""
        return tuple(self._batch.get(length, length) for length in shape)

    @property
    def expected(self):
        """The name and shape of each argument; "cotangent.mean" in a tuple of cotangents."""
        return tuple(
            (self.cotangents.get(name, name), self.public_shape(shape))
            for name, shape in self.signature.inputs.items()
        )

    def heading(self, name):
        """Write the first lines of the public function: its parameters, and the cotangents of
        several outputs, split."""
        variable = self.signature.variable
        inputs = [name for name in self.signature.inputs if name not in self.cotangents]
        parameters = [*inputs, *(["cotangent"] if self.cotangents else []), "*", "out=None"]
        lines = [f"def {name}({', '.join(parameters)}):"]
        lines += [f"    {variable(p)} = {p}" for p in (*inputs, "out") if variable(p) != p]
        if self.cotangents:
            split, given = (tuple_text(map(variable, names)) for names in (self.cotangents, inputs))
            lines.append(f"    {split} = _cotangents(_owner, _expected, {given}, cotangent)")
        return lines

    @property
    def kernel_results(self):
        """Views of the results as the kernel takes them, with one batch axis."""
        shapes = zip(self.output_shapes, self.result_shapes, strict=True)
        return tuple_text(
            f"_results[{position}]{'' if shape == full_shape else f'.reshape({shape})'}"
            for position, (shape, full_shape) in enumerate(shapes)
        )

    def shape_check(self, requirements, refusal):
        """Write the lines that run `refusal` if a shape is not the expected one, or a requirement
        is not met."""
        shapes = zip(self.variables, self.signature.inputs.values(), strict=True)
        conditions = [f"{name}.shape != {tuple_text(shape)}" for name, shape in shapes if shape]
        conditions += [f"not ({requirement})" for requirement in requirements]
        return [f"if {' or '.join(conditions)}:", f"    {refusal}"] if conditions else []

    def coercion_lines(self, requirements):
        """Write the lines that convert the arguments to arrays that kernels take, or raise."""
        inputs = tuple_text(self.variables)
        return [
            f"_given = {inputs}",
            f"_axes, {inputs} = _coerce(_owner, _expected, _given)",
            f"_dtype = {self.dtype}",
            *self.signature.size_lines(),
            *self.shape_check(requirements, "_raise_shape_error(_owner, _expected, _given)"),
        ]

    def allocation_lines(self):
        """Write the lines that allocate the results."""
        pairs = list(zip(self.outputs, self.output_shapes, strict=True))
        if len(pairs) > 1:
            lines = [f"{name} = _empty({shape}, _dtype)" for name, shape in pairs]
            return [f"_dtype = {self.dtype}", *lines]
        return [f"{name} = _empty({shape}, {self.dtype})" for name, shape in pairs]


def define_function(module, name, lines, parts, scope, can_fail=False):
    """Compile the text of a public function into `module`. can_fail: see `documentation`.

    The text refers to `scope` by names with a leading underscore, which no name of a declaration
    has."""
    module_name, text = module.names["__name__"], "\n".join(lines) + "\n"
    file = f"<{name} of {module_name}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file  # for tracebacks
    expected = (parts.expected, module.requirements, parts.returned.places)
    types = {f"_type_{type_name}": module.names[type_name] for type_name in parts.returned.types}
    scope = scope | types | {"__name__": module_name, "_owner": module.owner, "_expected": expected}
    exec(compile(text, file, "exec"), scope)
    scope[name].__doc__ = documentation(name, module, parts, can_fail)
    names = dict.fromkeys((name, *parts.returned.types))
    module.public += [name for name in names if name not in module.public]
    return scope[name]


def documentation(name, module, parts, can_fail):
    """Write the docstring of the public function `name`. parts: its `_Parts`; can_fail: whether it
    can raise LinAlgError."""
    shapes = map(parts.public_shape, parts.signature.outputs.values())
    results = [
        (f"result{place.removeprefix('out')}", shape)
        for place, shape in zip(parts.returned.places, shapes, strict=False)
    ]
    out = ["    out: where results are put; new arrays by default"]
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
