"""A generated module, as what makes its functions knows it."""

# mypy: allow-untyped-defs

from pathlib import Path


class _Module:
    """The name of the declared function, for messages, and the module's global names."""

    def __init__(self, owner, names):
        self.owner, self.names = owner, names
        self.requirements = names["REQUIREMENTS"]

    def formulas(self):
        """FORMULAS, from the file of the module's name in the folder `_formulas` beside it."""
        path = Path(self.names["__file__"])
        file = path.parent / "_formulas" / path.name
        found: dict = {}
        exec(compile(file.read_bytes(), file, "exec"), found)
        return found["FORMULAS"]
