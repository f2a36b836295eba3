"""Texts of public functions: their parts, their docstrings, and their compilation into a module."""

# mypy: allow-untyped-defs

import linecache

from .signature import BATCH_AXES, renamed, tuple_text

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
    """The parts of a public function's text. The local variable of a size is `_size_NAME`, that of
    a result `_array_NAME`; `_axes` are the batch axes, and `_results` the results with these.

    has_batch: whether the function has inputs with batch axes. cotangents: the last inputs, which
    the public function takes as one tuple `cotangent`."""

    def __init__(self, signature, returned, has_batch, cotangents=()):
        self.signature, self.returned, self.cotangents = signature, returned, cotangents
        batch = signature.kernel_names.get("batch", "batch") if has_batch else None
        public = {name: signature.names.get(name, name) for name in signature.inputs}
        self._local_names = {size: f"_size_{size}" for size in signature.sizes} | public
        self._local_names["len"] = "_len"  # takes 25 ns in Python, X.shape[0] 96 ns
        self.parameters = list(public.values())
        shapes = zip(self.parameters, signature.inputs.values(), strict=True)
        self.array_inputs = [name for name, shape in shapes if shape]
        self.outputs = [f"_array_{name}" for name in signature.outputs]
        self.output_shapes = [
            tuple_text(map(self.in_locals, s)) for s in signature.outputs.values()
        ]
        names = self._local_names | {batch: "*_axes"}
        self.result_shapes = [
            tuple_text(renamed(length, names) for length in shape)
            for shape in signature.outputs.values()
        ]
        self._public_names = signature.names | {batch: BATCH_AXES}
        self.kernel_arguments = ", ".join([*self.parameters, *self.outputs])
        arrays = self.array_inputs
        self.dtype = f"{arrays[0]}.dtype" if arrays else f"_real({self.parameters[0]})"
        self.out_parameter = "out"
        while self.out_parameter in self.parameters:
            self.out_parameter += "_"

    def public_shape(self, shape):
        """Write the shape of an argument or a result in public names."""
        return tuple(renamed(length, self._public_names) for length in shape)

    @property
    def expected(self):
        """The name and shape of each argument; "cotangent.mean" in a tuple of cotangents."""
        names = [n.replace("_", ".", 1) if n in self.cotangents else n for n in self.parameters]
        shapes = map(self.public_shape, self.signature.inputs.values())
        return tuple(zip(names, shapes, strict=True))

    def heading(self, name):
        """Write the first lines of the public function: its parameters, and the cotangents of
        several outputs, split."""
        inputs = [parameter for parameter in self.parameters if parameter not in self.cotangents]
        parameters = [*inputs, *(["cotangent"] if self.cotangents else [])]
        line = f"def {name}({', '.join([*parameters, '*', f'{self.out_parameter}=None'])}):"
        arguments = f"_owner, _expected, {tuple_text(inputs)}, cotangent"
        cotangents = tuple_text(self.cotangents)
        split = [f"    {cotangents} = _cotangents({arguments})"] if self.cotangents else []
        return [line, *split]

    @property
    def kernel_results(self):
        """Views of the results as the kernel takes them, with one batch axis."""
        shapes = zip(self.output_shapes, self.result_shapes, strict=True)
        return tuple_text(
            f"_results[{position}]{'' if shape == full_shape else f'.reshape({shape})'}"
            for position, (shape, full_shape) in enumerate(shapes)
        )

    def in_locals(self, text):
        """Write an expression of the signature's sizes and inputs, in the function's local
        variables."""
        return renamed(text, self._local_names)

    def size_lines(self, lines):
        """Write the assignments of the sizes that `lines` use, read from arguments that are
        arrays."""
        kernel_names = {local: name for name, local in self._local_names.items()}
        required = [renamed(line, kernel_names) for line in lines]
        return [self.in_locals(line) for line in self.signature.size_lines(required)]

    @property
    def all_size_lines(self):
        """Assignments of all sizes."""
        return [self.in_locals(line) for line in self.signature.size_lines(self.signature.sizes)]

    def shape_check(self, requirements, refusal):
        """Write the lines that run `refusal` if a shape is not the expected one, or a requirement
        is not met."""
        conditions = [
            f"{name}.shape != {tuple_text(map(self.in_locals, shape))}"
            for name, shape in zip(self.parameters, self.signature.inputs.values(), strict=True)
            if shape
        ]
        for requirement in requirements:
            text = self.in_locals(renamed(requirement, self.signature.kernel_names))
            conditions.append(f"not ({text})")
        return [f"if {' or '.join(conditions)}:", f"    {refusal}"] if conditions else []

    def coercion_lines(self, requirements):
        """Write the lines that convert the arguments to arrays that kernels take, or raise."""
        inputs = tuple_text(self.parameters)
        return [
            f"_given = {inputs}",
            f"_axes, {inputs} = _coerce(_owner, _expected, _given)",
            f"_dtype = {self.dtype}",
            *self.all_size_lines,
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
