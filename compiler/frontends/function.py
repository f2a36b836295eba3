"""The declaration of a function: its inputs, its expression, what to differentiate by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import sympy

from derivatrix.compiler.differentiate.derivation import Steps, derivation
from derivatrix.compiler.differentiate.derivatives import KINDS, SCALAR_KINDS, Derivatives
from derivatrix.compiler.formulas.names import latex_name
from derivatrix.compiler.frontends.limits import require_modest, stated_depth
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.arrays import Array, asarray
from derivatrix.compiler.ir.declaration import Declaration
from derivatrix.compiler.ir.dimensions import BATCH, Shape, shape_text
from derivatrix.compiler.ir.identifiers import require_name, require_variable
from derivatrix.compiler.ir.nodes import Apply, Einsum, Leaf, Map, Node, Slice, full, topological
from derivatrix.compiler.ir.nodes import leaves as leaves_below
from derivatrix.compiler.ir.pickled import pickled
from derivatrix.compiler.ir.requirements import requirements
from derivatrix.compiler.ir.scalar_values import require_kernel
from derivatrix.compiler.ir.shown import shown
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.runtime.errors import DeclarationError, DerivatrixError, ShapeError

OPERATOR_KINDS = ("jacobian_operator", "hessian_operator")
NEEDED_KINDS = {
    "jacobian_operator": ("jvp",),
    "hessian": ("gradient",),
    "hvp": ("gradient",),
    "hessian_operator": ("gradient", "hvp"),
}
"""Kind -> the others that verification compares it with."""

RESERVED = ("out", "cotangent", "tangent", "numba", "math", "batch")


@dataclass(eq=False, repr=False)
class Function(Declaration):
    """A declared function, with its derivatives and their formulas.

    derived: for a derivative, the function that was declared, and the inputs by which it was
    differentiated. source: the function file that it was loaded from; "" for none. selection: the
    kinds that modules of it have, with what these need; None for all.
    """

    derived: tuple[Function, tuple[str, ...]] | None = None
    source: str = ""
    selection: tuple[str, ...] | None = None

    @property
    def _fields(self) -> tuple[Any, ...]:
        return (*(getattr(self, field.name) for field in fields(self)),)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(Function, self._fields, [*self.inputs, self.expression])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(self._fields)

    @cached_property
    def derivatives(self) -> Derivatives:
        """The derivatives in closed form."""
        return Derivatives(self)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What a generated module offers: value, vjp, jvp, jacobian, and for a scalar function
        gradient, value_and_gradient, hessian, hvp; of these the selected ones."""
        return tuple(kind for kind in self.derivatives.kinds if self._selects(kind))

    @property
    def operator(self) -> str:
        """The kind that returns operators, jacobian_operator or hessian_operator; "" where it is
        not selected."""
        kind = "jacobian_operator" if self.expression.shape else "hessian_operator"
        return kind if self._selects(kind) else ""

    def _selects(self, kind: str) -> bool:
        return self.selection is None or kind in self.selection

    def with_kinds(self, kinds: Any) -> Function:
        """The function with those of `kinds` that it has selected; itself where they are None or it
        has a selection. Raises DeclarationError for what is no kind of any function."""
        if kinds is None or self.selection is not None:
            return self
        names = _kinds(self.name, kinds, (*KINDS, *SCALAR_KINDS, *OPERATOR_KINDS))
        return replace(self, selection=_with_needs(names))

    def formula(self, kind: str, wrt: Any = None, style: str = "unicode") -> str:
        """The formula of a derivative.

        kind: one of `kinds`; wrt: an input (or its name), a pair of them for a Hessian; may be
        left out where there is one choice; style: "unicode", "latex", "numpy" or "index"; or "vec",
        "vec-latex" or "vec-numpy", in which Jacobians and Hessians with more than two axes are
        matrices ∂vec Y/∂(vec X)ᵀ. Raises DeclarationError for what does not exist, and
        UnsupportedError for what has no vec form or no text in NumPy.
        """
        with stated_depth(self.name):
            return self.derivatives.formula(kind, wrt, style)

    def steps(self, wrt: Any = None, style: str = "unicode") -> Steps:
        """How the gradient of a scalar function, or the VJP, by an input comes about: its lines,
        each a `text` and the `reason` for it, which print as a table.

        wrt: an input (or its name); may be left out where there is one choice; style: "unicode",
        "latex" or "index". Raises DeclarationError for what does not exist.
        """
        if wrt is not None:
            (wrt,) = _names(self.name, "steps", [wrt], self.wrt)
        with stated_depth(self.name):
            return derivation(self.derivatives, wrt, style)

    def _repr_latex_(self) -> str:
        names = ", ".join(latex_name(leaf.name, "") for leaf in self.inputs)
        title = self.name.replace("_", r"\_")
        left = rf"\operatorname{{{title}}}\left({names}\right)"
        return rf"$\displaystyle {left} = {self.formula('value', style='latex')}$"

    def derivative(self, *wrt: Any) -> Function:
        """The derivative by one input, then by the next, and so on, as a function of its own.

        `f.derivative("X", "X", "X")` is the third derivative, of shape (*out.shape, *X.shape,
        *X.shape, *X.shape), called f_X_X_X. It takes what this function takes, inputs that it
        does not depend on included, and is projected on the structures of the inputs like every
        derivative. Raises DeclarationError for what is not among `wrt` of this function.
        """
        if not wrt:
            raise DeclarationError(f"{self.name}: derivative by what? Name one or more inputs")
        names = [part for each in wrt for part in _names(self.name, "derivative", [each], self.wrt)]
        with stated_depth(self.name):
            node = self.derivatives.repeated(names)
        title = require_name("_".join([self.name, *names]), "a derivative")
        return Function(title, self.inputs, node, self.wrt, self.batch, (self, tuple(names)))

    @property
    def origin(self) -> tuple[Function | None, str]:
        """For a derivative, the function that it is the derivative of and by which input."""
        if self.derived is None:
            return None, ""
        first, (*names, last) = self.derived
        return (first.derivative(*names) if names else first), last

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """Conditions on the dimensions that slices, indices, divisors and operations ask for, as
        Python texts: "n >= 2", "n >= k", "n % 2 == 0"."""
        return requirements(self.expression)

    @property
    def declaration(self) -> str:
        """The function as declared, as a NumPy expression of the inputs, batch axes included."""
        return self.derivatives.declaration

    @property
    def domains(self) -> dict[str, str]:
        """For inputs that an operation takes directly, the structure its points need."""
        found: dict[str, str] = {}
        for node in topological([self.expression]):
            if isinstance(node, Apply):
                needs = node.operation.domain or ("",) * len(node.arguments)
                for (argument, _), need in zip(node.arguments, needs, strict=True):
                    if need and isinstance(argument, Leaf) and argument.structure == "general":
                        found.setdefault(argument.name, need)
        return found


def function(
    name: str,
    inputs: Sequence[Any],
    expr: Any,
    wrt: Sequence[Any] | None = None,
    batch: Sequence[Any] = (),
    kinds: Sequence[str] | None = None,
) -> Function:
    """Declare a function.

    inputs: symbolic inputs (derivatrix's or SymPy's), in the order of the arguments; expr: a
    scalar or array expression of them; wrt: the inputs to differentiate by (all by default);
    batch: inputs that gain one leading batch axis. A symbol or its name will do. kinds: what
    generated modules have, such as ["value", "vjp"] (all by default): value, vjp, jvp, jacobian,
    jacobian_operator; of a scalar function also gradient, value_and_gradient, hessian, hvp, and
    hessian_operator instead of jacobian_operator. The value is always there, with hessian and hvp
    the gradient, with jacobian_operator the jvp, with hessian_operator the hvp.

    Raises DeclarationError for names or symbols that make no sense, ShapeError for dimensions
    that disagree.
    """
    require_name(name, "a function")
    try:
        given = asarray(expr).node
        leaves = tuple(_input(name, value, given) for value in _sequence(name, "inputs", inputs))
        _check_inputs(name, leaves)
        for size in sorted(_used(leaves, given), key=str):
            require_variable(str(size), "a size")
        expression = _resolve(name, given, leaves)
        _check_scalar_functions(expression)
    except DerivatrixError as error:
        if str(error).startswith(f"{name}:"):
            raise
        raise type(error)(f"{name}: {error}") from error
    names = [leaf.name for leaf in leaves]
    require_modest(name, expression)
    _check_used(name, leaves, expression)
    chosen = names if wrt is None else _names(name, "wrt", wrt, names)
    if not chosen:
        raise DeclarationError(f"{name}: wrt is empty; name at least one input")
    stacked = _names(name, "batch", batch, names)
    _check_dimensions(name, leaves, expression, bool(stacked))
    ordered = tuple(chosen)
    made = Function(name, leaves, expression, ordered, tuple(n for n in names if n in stacked))
    if kinds is not None:
        operators = OPERATOR_KINDS[not expression.shape]
        selected = _kinds(name, kinds, (*made.kinds, operators))
        made = replace(made, selection=_with_needs(selected))
    try:
        _ = made.requirements
    except DeclarationError as error:
        raise DeclarationError(f"{name}: {error}") from error
    return made


def derive(function: Function) -> Derivatives:
    """The derivatives of a function in closed form; printing them shows the formulas.

    Raises DeclarationError for what is no declared function.
    """
    return require_function(function, "derive").derivatives


def require_function(value: object, place: str) -> Function:
    """The value itself. Raises DeclarationError unless it is a declared function."""
    if not isinstance(value, Function):
        raise DeclarationError(
            f"{place}: {shown(value)} (of type {type(value).__name__}) is no derivatrix "
            "function; declare one with `derivatrix.function(name, inputs, expression)`"
        )
    return value


def _sequence(name: str, what: str, values: Any) -> list[Any]:
    if isinstance(values, (Array, sympy.Basic, str)):
        return [values]
    try:
        return list(values)
    except TypeError as error:
        raise DeclarationError(
            f"{name}: {what} is a list of inputs, not {shown(values)}"
        ) from error


def _input(name: str, value: Any, expression: Node) -> Leaf:
    if isinstance(value, str):
        value = _called(name, value, expression)
    if isinstance(value, (Array, sympy.Symbol, sympy.MatrixSymbol)):
        if isinstance(value, sympy.Symbol) and value == dimensions.symbol(value.name):
            raise DeclarationError(f"{name}: {value} is a dimension, not an input")
        node = asarray(value).node
        if isinstance(node, Leaf):
            return Leaf(node.name, node.shape, node.structure)
    raise DeclarationError(
        f"{name}: {shown(value)} is no input; declare inputs with matrix, vector, scalar or tensor"
    )


def _called(name: str, known: str, expression: Node) -> Array:
    """The symbol of the expression that is called `known`, one declared with a structure first."""
    found = [leaf for leaf in leaves_below([expression]) if leaf.name == known]
    if not found:
        raise DeclarationError(
            f"{name}: inputs names {shown(known)}, which the expression does not use"
        )
    return Array(min(found, key=lambda leaf: leaf.role == "symbol"))


def _check_inputs(name: str, leaves: Sequence[Leaf]) -> None:
    if not leaves:
        raise DeclarationError(f"{name}: a function needs at least one input")
    seen: set[str] = set()
    symbols = {str(s) for leaf in leaves for size in leaf.shape for s in size.free_symbols}
    for leaf in leaves:
        require_variable(leaf.name, "an input")
        if leaf.name in RESERVED or leaf.name.startswith(("tangent_", "out_")):
            raise DeclarationError(f"{name}: the input name {leaf.name!r} is taken; choose another")
        if leaf.name in seen:
            raise DeclarationError(f"{name}: two inputs are called {leaf.name!r}")
        if leaf.name in symbols:
            raise DeclarationError(
                f"{name}: {leaf.name!r} names both an input and a dimension; rename one"
            )
        seen.add(leaf.name)


def _resolve(name: str, expression: Node, leaves: Sequence[Leaf]) -> Node:
    """The expression with every leaf one of the declared inputs, and dimensions as numbers.
    SymPy's symbols say nothing of structure, and take what is declared."""
    declared = {leaf.name: leaf for leaf in leaves}
    symbols = {str(s) for leaf in leaves for size in leaf.shape for s in size.free_symbols}
    replacements: dict[Node, Node] = {}
    for node in topological([expression]):
        if not isinstance(node, Leaf):
            continue
        known = declared.get(node.name)
        symbolic = node.role == "symbol"
        if known is None and symbolic and not node.shape and node.name in symbols:
            replacements[node] = full(dimensions.symbol(node.name))
        elif known is None:
            raise DeclarationError(
                f"{name}: the expression uses {node.name!r}, which is not among the inputs "
                f"({', '.join(declared)}); add it to inputs"
            )
        elif known.shape != node.shape:
            raise ShapeError(
                f"{name}: {node.name} is declared with shape {shape_text(known.shape)} and used "
                f"with shape {shape_text(node.shape)}"
            )
        elif known.structure != node.structure and not symbolic:
            raise DeclarationError(
                f"{name}: {node.name} is {known.structure} in inputs and {node.structure} in the "
                "expression; declare it once, with one structure"
            )
        elif known is not node:
            replacements[node] = known
    return substitute([expression], replacements)[0] if replacements else expression


def _check_used(name: str, leaves: Sequence[Leaf], expression: Node) -> None:
    below = set(topological([expression]))
    for leaf in leaves:
        if leaf not in below:
            raise DeclarationError(
                f"{name}: the input {leaf.name!r} is never used; remove it from inputs"
            )


def _check_scalar_functions(expression: Node) -> None:
    """Raise UnsupportedError for an elementwise function that no kernel computes."""
    for node in topological([expression]):
        if isinstance(node, Map):
            require_kernel(node.expression)


def _names(name: str, what: str, values: Sequence[Any], names: Sequence[str]) -> list[str]:
    chosen: list[str] = []
    for value in _sequence(name, what, values):
        known = value if isinstance(value, str) else getattr(value, "name", shown(value))
        if known not in names:
            raise DeclarationError(
                f"{name}: {what} names {shown(known)}, which is not among the inputs "
                f"({', '.join(names)})"
            )
        if known in chosen:
            raise DeclarationError(f"{name}: {what} names {shown(known)} twice")
        chosen.append(known)
    return chosen


def _kinds(name: str, kinds: Any, valid: Sequence[str]) -> list[str]:
    """The names in `kinds`. Raises DeclarationError for no list of `valid` ones."""
    choices = f"choose from {', '.join(valid)}"
    names = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(names, Sequence) or not names:
        raise DeclarationError(f"{name}: kinds is {shown(kinds)}, expected a list; {choices}")
    for kind in names:
        if not isinstance(kind, str) or kind not in valid:
            raise DeclarationError(f"{name}: kinds names {shown(kind)}; {choices}")
    return [*names]


def _with_needs(kinds: Sequence[str]) -> tuple[str, ...]:
    """Kinds with those that they need, in order."""
    needed = {"value", *kinds, *(other for kind in kinds for other in NEEDED_KINDS.get(kind, ()))}
    return tuple(k for k in (*KINDS, *SCALAR_KINDS, *OPERATOR_KINDS) if k in needed)


def _check_dimensions(name: str, leaves: Sequence[Leaf], expression: Node, stacked: bool) -> None:
    """Every dimension must be readable off an input's shape."""
    readable = set(dimensions.readings([leaf.shape for leaf in leaves]))
    used = _used((), expression)
    for symbol in sorted(used - readable, key=str):
        raise DeclarationError(
            f"{name}: the dimension {symbol} cannot be read off the shape of any input"
        )
    if stacked and BATCH in used:
        raise DeclarationError(f"{name}: with batch=, no dimension may be called 'batch'")


def _used(leaves: Sequence[Leaf], expression: Node) -> set[sympy.Basic]:
    """The sizes in the shapes of inputs, and wherever an expression has some."""
    used = {symbol for leaf in leaves for symbol in _symbols(leaf.shape)}
    for node in topological([expression]):
        used |= _symbols(node.shape)
        if isinstance(node, Einsum):
            used |= _symbols((node.coefficient, *node.sizes))
        if isinstance(node, Apply):
            used |= _symbols(node.stack)
        if isinstance(node, Slice):
            used |= _symbols((node.start,))
    return used


def _symbols(expressions: Shape) -> set[sympy.Basic]:
    return {symbol for expression in expressions for symbol in expression.free_symbols}
