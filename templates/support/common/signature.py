"""What a kernel takes and fills, from a text such as "X[n, n], scale -> out[n]"."""

# mypy: allow-untyped-defs

import ast
import re


class _Signature:
    """The arrays of a kernel: `inputs` and `outputs`, name -> the texts of its lengths; without
    brackets a number. sizes: name -> how it is read from the inputs, those first that others need.

    sizes: texts such as "n = x.shape[0] - 1" for sizes that are no axis's length. names: of those
    inputs and sizes that callers and messages call otherwise."""

    def __init__(self, text, sizes=(), names=None):
        given, filled = text.split("->")
        self.inputs, self.outputs = _arrays(given), _arrays(filled)
        self.names = names or {}
        self.sizes: dict = {}
        for name, shape in self.inputs.items():
            for axis, length in enumerate(shape):
                if length.isidentifier():
                    self.sizes.setdefault(length, f"{name}.shape[{axis}]")
        for each in sizes:
            size, read = each.split(" = ")
            self.sizes[size] = read

    @property
    def local(self):
        """The kernel's own names of what callers call otherwise."""
        return {public: name for name, public in self.names.items()}

    @property
    def expected(self):
        """Name and shape of each input as callers know them."""
        return tuple(
            (self.names.get(name, name), tuple(renamed(length, self.names) for length in shape))
            for name, shape in self.inputs.items()
        )

    @property
    def arrays(self):
        """The names of all parameters."""
        return [*self.inputs, *self.outputs]

    def kinds(self, names=None):
        """The types of parameters, of all if they are not named: "real:2" for an array of two axes,
        "real" for a number."""
        every = {
            name: f"real:{len(shape)}" if shape else "real" for name, shape in self.inputs.items()
        }
        every |= {name: f"real:{len(shape)}" for name, shape in self.outputs.items()}
        return [every[name] for name in (self.arrays if names is None else names)]

    def reading(self, texts):
        """Lines that read the sizes in these texts."""
        wanted = words(" ".join(texts))
        lines: list = []
        for size, read in reversed(self.sizes.items()):
            if size in wanted:
                lines.insert(0, f"{size} = {read}")
                wanted |= words(read)
        return lines


def words(text):
    """The names in a text."""
    return set(re.findall(r"[^\W\d]\w*", text))


def renamed(text, names):
    """A text with other names in it."""
    return re.sub(r"[^\W\d]\w*", lambda word: names.get(word[0], word[0]), text)


def tuple_text(texts):
    """A tuple of what the texts stand for."""
    texts = list(texts)
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def indented(lines):
    """Lines within another one."""
    return [f"    {line}" for line in lines]


def _arrays(text):
    """Name -> the texts of the lengths."""
    call = ast.parse(f"_({text.strip().replace('[]', '[()]')})", mode="eval").body
    found: dict = {}
    for part in call.args:  # type: ignore[attr-defined]
        if isinstance(part, ast.Name):
            found[part.id] = ()
            continue
        lengths = part.slice.elts if isinstance(part.slice, ast.Tuple) else [part.slice]
        found[part.value.id] = tuple(map(ast.unparse, lengths))
    return found
