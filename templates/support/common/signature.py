"""Signatures of kernels, as in "X[n, n], scale -> out[n]".

The texts are parsed, as NumPy parses those of generalised ufuncs: a line says all that a reader
needs, and lengths may be arithmetic of sizes."""

# mypy: allow-untyped-defs

import ast
import re

BATCH_AXES = "*batch"
"""All batch axes in the shape of an argument or a result; kernels have one axis for them."""


class _Signature:
    """The parameters of a kernel: `inputs` and `outputs` map a name to the texts of its lengths, ()
    for a number; `sizes` maps a size to the expression that reads it from the inputs, in an order
    in which each refers to earlier sizes only.

    sizes: texts such as "n = len(x) - 1" for sizes that are not the length of an axis. names:
    kernel's name -> public name, of inputs and sizes whose names differ."""

    def __init__(self, text, sizes=(), names=None):
        inputs, outputs = text.split("->")
        self.inputs, self.outputs = _arrays(inputs), _arrays(outputs)
        self.names = names or {}
        self.sizes: dict = {}
        for name, shape in self.inputs.items():
            for axis, length in enumerate(shape):
                if length.isidentifier():
                    read = f"{name}.shape[{axis}]" if axis else f"len({name})"
                    self.sizes.setdefault(length, read)
        for assignment in sizes:
            size, expression = assignment.split(" = ")
            self.sizes[size] = expression

    @property
    def kernel_names(self):
        """Public name -> the kernel's name, of inputs and sizes whose names differ."""
        return {public: name for name, public in self.names.items()}

    @property
    def arrays(self):
        """The names of all parameters."""
        return [*self.inputs, *self.outputs]

    def kinds(self, names=None):
        """List the types of the named parameters, by default of all: "real:2" for an array of two
        axes, "real" for a number."""
        types = {
            name: f"real:{len(shape)}" if shape else "real" for name, shape in self.inputs.items()
        }
        types |= {name: f"real:{len(shape)}" for name, shape in self.outputs.items()}
        return [types[name] for name in (self.arrays if names is None else names)]

    def size_lines(self, texts):
        """Write the assignments of the sizes that occur in `texts`, and of the sizes that those
        depend on."""
        required = identifiers(" ".join(texts))
        lines: list = []
        for size, expression in reversed(self.sizes.items()):
            if size in required:
                lines.insert(0, f"{size} = {expression}")
                required |= identifiers(expression)
        return lines


def identifiers(text):
    """Find the names in the text of an expression."""
    return set(re.findall(r"[^\W\d]\w*", text))


def renamed(text, names):
    """Replace names in the text of an expression."""
    return re.sub(r"[^\W\d]\w*", lambda name: names.get(name[0], name[0]), text)


def tuple_text(texts):
    """Write the text of a tuple of expressions."""
    texts = list(texts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def indented(lines):
    """Indent lines by one level."""
    return [f"    {line}" for line in lines]


def _arrays(text):
    """Parse "X[n, n], scale": map each name to the texts of its lengths."""
    call = ast.parse(f"_({text.strip().replace('[]', '[()]')})", mode="eval").body
    shapes: dict = {}
    for parameter in call.args:  # type: ignore[attr-defined]
        if isinstance(parameter, ast.Name):
            shapes[parameter.id] = ()
            continue
        axes = parameter.slice
        lengths = axes.elts if isinstance(axes, ast.Tuple) else [axes]
        shapes[parameter.value.id] = tuple(map(ast.unparse, lengths))
    return shapes
