"""What the texts of public functions are put together from."""

# mypy: allow-untyped-defs

import linecache
import re

from .documentation import documentation
from .signature import renamed, tuple_text


class _Parts:
    """Texts that public functions are put together from: sizes are local variables `_size_` + their
    name, the arrays to be filled `_array_` + theirs."""

    def __init__(self, signature, returned):
        self.signature, self.returned = signature, returned
        public = {each: signature.names.get(each, each) for each in signature.inputs}
        self._names = {size: f"_size_{size}" for size in signature.sizes} | public
        self.parameters = list(public.values())
        shapes = zip(self.parameters, signature.inputs.values(), strict=True)
        self.arrays = [name for name, shape in shapes if shape]
        self.filled = [f"_array_{each}" for each in signature.outputs]
        self.shapes = [tuple_text(map(self.sized, s)) for s in signature.outputs.values()]
        self.passed = ", ".join([*self.parameters, *self.filled])
        self.dtype = f"{self.arrays[0]}.dtype" if self.arrays else f"_real({self.parameters[0]})"
        self.out = "out"
        while self.out in self.parameters:
            self.out += "_"

    def sized(self, text):
        """A text of sizes and inputs, in the function's own names."""
        return renamed(text, self._names)

    def reading(self, lines):
        """Lines that read the sizes which others need, from arrays."""
        unsized = {local: size for size, local in self._names.items()}
        wanted = [renamed(line, unsized) for line in lines]
        found = [self.sized(line) for line in self.signature.reading(wanted)]
        return [re.sub(r"(\w+)\.shape\[0\]", r"len(\1)", line) for line in found]

    def wrong(self, requirements):
        """The condition under which arguments have other shapes than expected; "" if none can."""
        wrong = [
            f"{name}.shape != {tuple_text(map(self.sized, shape))}"
            for name, shape in zip(self.parameters, self.signature.inputs.values(), strict=True)
            if shape
        ]
        local = [self.sized(renamed(each, self.signature.local)) for each in requirements]
        return " or ".join([*wrong, *(f"not ({each})" for each in local)])

    @property
    def all_sizes(self):
        """Lines that read all sizes."""
        return [self.sized(line) for line in self.signature.reading(self.signature.sizes)]

    def start(self, requirements):
        """Lines that bring the arguments to what kernels take, or refuse them."""
        inputs, wrong = tuple_text(self.parameters), self.wrong(requirements)
        refusing = [f"if {wrong}:", f"    _refuse(_owner, _expected, {inputs})"]
        return [
            f"{inputs} = _coerced(_owner, _expected, {inputs})",
            f"_dtype = {self.dtype}",
            *self.all_sizes,
            *(refusing if wrong else []),
        ]

    def empty(self):
        """Lines that make arrays for the results."""
        dtype = self.dtype if len(self.filled) == 1 else "_dtype"
        pairs = zip(self.filled, self.shapes, strict=True)
        made = [f"{name} = _empty({shape}, {dtype})" for name, shape in pairs]
        return [f"_dtype = {self.dtype}", *made] if len(made) > 1 else made


def defined(module, name, lines, parts, scope):
    """The public function of a text, as if the module's own file had it. Its text refers only to
    names that begin with an underscore, as none of a declaration does."""
    own, text = module.names["__name__"], "\n".join(lines) + "\n"
    file = f"<{name} of {own}>"
    linecache.cache[file] = len(text), None, text.splitlines(True), file
    expected = (parts.signature.expected, module.requirements, parts.returned.places)
    types = {f"_type_{each}": module.names[each] for each in parts.returned.types}
    scope = scope | types | {"__name__": own, "_owner": module.owner, "_expected": expected}
    exec(compile(text, file, "exec"), scope)
    scope[name].__doc__ = documentation(name, module, parts)
    found = dict.fromkeys((name, *parts.returned.types))
    module.public += [each for each in found if each not in module.public]
    return scope[name]
