"""The declaration of a function: its inputs, its expression, what to differentiate by."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import sympy

from derivatrix.compiler.differentiate.derivation import Steps, derivation
from derivatrix.compiler.differentiate.derivatives import KINDS, SCALAR_KINDS, Derivatives
from derivatrix.compiler.formulas.names import latex_name
from derivatrix.compiler.frontends.call import call
from derivatrix.compiler.frontends.limits import require_modest, stated_depth
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.arrays import Array, asarray
from derivatrix.compiler.ir.declaration import Declaration
from derivatrix.compiler.ir.dimensions import BATCH, Shape, shape_text
from derivatrix.compiler.ir.graph import size_symbols
from derivatrix.compiler.ir.identifiers import require_name, require_variable
from derivatrix.compiler.ir.nodes import Apply, Leaf, Map, Node, full, topological
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
"""Kind -> the other kinds that verification compares it with."""
RESERVED = ("out", "cotangent", "tangent", "numba", "math", "batch")
"""Names that generated modules use themselves."""
DIRECTION_STRUCTURES = {
    "spd": "symmetric",
    **{name: name for name in ("symmetric", "lower", "upper", "diagonal")},
}
"""Structure of an input -> that of its tangents, where these are a linear space."""


@dataclass(eq=False, repr=False)
class Function(Declaration):
    """A declared function, with its derivatives and their formulas.

    derived: for a derivative, the declared function and the inputs by which it was differentiated.
    source: the function file that it was loaded from, or "". selection: the kinds that its modules
    have, with those that they need; None for all. primal: the function of which this is the JVP
    (`second`).
    """

    derived: tuple[Function, tuple[str, ...]] | None = None
    source: str = ""
    selection: tuple[str, ...] | None = None
    primal: Function | None = None

    @property
    def _fields(self) -> tuple[Any, ...]:
        return (*(getattr(self, field.name) for field in fields(self)),)

    def __reduce__(self) -> tuple[Any, ...]:
        return pickled(Function, self._fields, [*self.inputs, self.expression])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(self._fields)

    def __call__(self, *arguments: Any, **named: Any) -> Array:
        """The expression of the function with `arguments` for its inputs, in their order or by
        name: symbolic arrays, SymPy expressions and numbers.

        The sizes of the inputs are those of the arguments. Arguments of inputs in `batch` have any
        number of leading axes, which broadcast; the result has these in front. As for modules, a
        full matrix for an input with a structure means the nearest matrix of the structure, and a
        domain such as "positive" is up to the caller; numbers are checked.

        Raises DeclarationError for arguments that are missing, and for one of an orthogonal input
        that is not known to be orthogonal; ShapeError for sizes that do not fit.
        """
        return call(self, arguments, named)

    @cached_property
    def derivatives(self) -> Derivatives:
        """The derivatives in closed form."""
        return Derivatives(self)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The selected kinds of functions in a generated module, of value, vjp, jvp, jacobian and,
        for a scalar function, gradient, value_and_gradient, hessian, hvp."""
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
        """The function with `kinds` as its selection, unless that is None or there is a selection
        already. Raises DeclarationError for a kind that no function has."""
        if kinds is None or self.selection is not None:
            return self
        names = _kinds(self.name, kinds, (*KINDS, *SCALAR_KINDS, *OPERATOR_KINDS))
        return replace(self, selection=_with_needs(names))

    def formula(self, kind: str, wrt: Any = None, style: str = "unicode") -> str:
        """The formula of a derivative.

        kind: one of `kinds`. wrt: an input or its name, a pair of them for a Hessian; optional
        where there is only one. style: "unicode", "latex", "numpy" or "index"; or "vec",
        "vec-latex" or "vec-numpy", in which Jacobians and Hessians with more than two axes are
        matrices ∂vec Y/∂(vec X)ᵀ. Raises DeclarationError for a derivative that does not exist,
        UnsupportedError for one without vec form or NumPy text."""
        with stated_depth(self.name):
            return self.derivatives.formula(kind, wrt, style)

    def steps(self, wrt: Any = None, style: str = "unicode") -> Steps:
        """The derivation of the gradient of a scalar function, or of the VJP, by an input: lines
        with a `text` and the `reason` for it, which print as a table.

        wrt: an input or its name; optional where there is only one. style: "unicode", "latex" or
        "index". Raises DeclarationError for an input that does not exist.
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
        *X.shape, *X.shape), called f_X_X_X. It takes all inputs of this function, also those that
        it does not depend on, and is projected on the structures of the inputs like every
        derivative. Raises DeclarationError for an input that is not among `wrt` of this function.
        """
        if not wrt:
            raise DeclarationError(f"{self.name}: derivative by what? Name one or more inputs")
        # one by one: an input may occur several times
        names = [
            name for source in wrt for name in _names(self.name, "derivative", [source], self.wrt)
        ]
        with stated_depth(self.name):
            node = self.derivatives.repeated(names)
        title = require_name("_".join([self.name, *names]), "a derivative")
        return Function(title, self.inputs, node, self.wrt, self.batch, (self, tuple(names)))

    @property
    def second(self) -> Function:
        """The JVP as a function of its own, whose VJP and JVP are the second derivatives of this
        one; called `f_second`.

        It takes the inputs of this function, then a direction for each input in `wrt`: dX for X.
        """
        names = {*self.derivatives.declared}
        directions: dict[Leaf, Leaf] = {}
        for leaf in self.derivatives.wrt:
            name = f"d{leaf.name}"
            while name in names or keyword.iskeyword(name) or hasattr(builtins, name):
                name += "_"
            names.add(name)
            structure = DIRECTION_STRUCTURES.get(leaf.structure, "general")
            directions[leaf] = Leaf(require_variable(name, "a direction"), leaf.shape, structure)
        with stated_depth(self.name):
            jvp = self.derivatives.along(directions)
        return Function(
            require_name(f"{self.name}_second", "the function with the second derivatives"),
            (*self.inputs, *directions.values()),
            jvp,
            self.wrt,
            (*self.batch, *(d.name for leaf, d in directions.items() if leaf.name in self.batch)),
            source=self.source,
            selection=("value", "vjp", "jvp"),
            primal=self,
        )

    @property
    def origin(self) -> tuple[Function | None, str]:
        """The function that this one is the derivative of, and the input by which; None and "" if
        it is none."""
        if self.derived is None:
            return None, ""
        declared, (*names, last_name) = self.derived
        return (declared.derivative(*names) if names else declared), last_name

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """Conditions on the sizes that slices, indices, divisors and operations impose, as Python
        texts: "n >= 2", "n >= k", "n % 2 == 0"."""
        return requirements(self.expression)

    @property
    def declaration(self) -> str:
        """The function as declared, as a NumPy expression of the inputs, batch axes included."""
        return self.derivatives.declaration

    @property
    def domains(self) -> dict[str, str]:
        """Input -> the structure that an operation of it requires of sample points."""
        domains: dict[str, str] = {}
        for node in topological([self.expression]):
            if isinstance(node, Apply):
                needs = node.operation.domain or ("",) * len(node.arguments)
                for (argument, _), need in zip(node.arguments, needs, strict=True):
                    if need and isinstance(argument, Leaf) and argument.structure == "general":
                        domains.setdefault(argument.name, need)
        return domains


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
    batch: inputs that gain any number of leading batch axes. A symbol or its name will do. kinds:
    what generated modules have, such as ["value", "vjp"] (all by default): value, vjp, jvp,
    jacobian, jacobian_operator; of a scalar function also gradient, value_and_gradient, hessian,
    hvp, and hessian_operator instead of jacobian_operator. The value is always there, with hessian
    and hvp the gradient, with jacobian_operator the jvp, with hessian_operator the hvp.

    Raises DeclarationError for invalid names or symbols, ShapeError for dimensions that disagree.
    """
    require_name(name, "a function")
    try:
        declared = asarray(expr).node
        leaves = tuple(_input(name, value, declared) for value in _sequence(name, "inputs", inputs))
        _check_inputs(name, leaves)
        for size in sorted(_size_symbols(leaves, declared), key=str):
            require_variable(str(size), "a size")
        expression = _resolve(name, declared, leaves)
        _check_scalar_functions(expression)
    except DerivatrixError as error:
        if str(error).startswith(f"{name}:"):
            raise
        raise type(error)(f"{name}: {error}") from error
    names = [leaf.name for leaf in leaves]
    require_modest(name, expression)
    _require_used(name, leaves, expression)
    selected_wrt = names if wrt is None else _names(name, "wrt", wrt, names)
    if not selected_wrt:
        raise DeclarationError(f"{name}: wrt is empty; name at least one input")
    stacked = _names(name, "batch", batch, names)
    _check_dimensions(name, leaves, expression, bool(stacked))
    batched = tuple(leaf_name for leaf_name in names if leaf_name in stacked)
    declaration = Function(name, leaves, expression, tuple(selected_wrt), batched)
    if kinds is not None:
        operators = OPERATOR_KINDS[not expression.shape]
        selected = _kinds(name, kinds, (*declaration.kinds, operators))
        declaration = replace(declaration, selection=_with_needs(selected))
    try:
        _ = declaration.requirements
    except DeclarationError as error:
        raise DeclarationError(f"{name}: {error}") from error
    return declaration


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


def _sequence(name: str, argument: str, values: Any) -> list[Any]:
    if isinstance(values, (Array, sympy.Basic, str)):
        return [values]
    try:
        return list(values)
    except TypeError as error:
        raise DeclarationError(
            f"{name}: {argument} is a list of inputs, not {shown(values)}"
        ) from error


def _input(name: str, value: Any, expression: Node) -> Leaf:
    if isinstance(value, str):
        value = _symbol_called(name, value, expression)
    if isinstance(value, (Array, sympy.Symbol, sympy.MatrixSymbol)):
        if isinstance(value, sympy.Symbol) and value == dimensions.symbol(value.name):
            raise DeclarationError(f"{name}: {value} is a dimension, not an input")
        node = asarray(value).node
        if isinstance(node, Leaf):
            return Leaf(node.name, node.shape, node.structure)
    raise DeclarationError(
        f"{name}: {shown(value)} is no input; declare inputs with matrix, vector, scalar or tensor"
    )


def _symbol_called(name: str, symbol: str, expression: Node) -> Array:
    """The leaf of the expression called `symbol`. One with a declared structure takes precedence
    over SymPy's symbol."""
    candidates = [leaf for leaf in leaves_below([expression]) if leaf.name == symbol]
    if not candidates:
        raise DeclarationError(
            f"{name}: inputs names {shown(symbol)}, which the expression does not use"
        )
    return Array(min(candidates, key=lambda leaf: leaf.role == "symbol"))


def _check_inputs(name: str, leaves: Sequence[Leaf]) -> None:
    if not leaves:
        raise DeclarationError(f"{name}: a function needs at least one input")
    names: set[str] = set()
    symbols = {str(s) for leaf in leaves for size in leaf.shape for s in size.free_symbols}
    for leaf in leaves:
        require_variable(leaf.name, "an input")
        if leaf.name in RESERVED or leaf.name.startswith(("tangent_", "out_")):
            raise DeclarationError(f"{name}: the input name {leaf.name!r} is taken; choose another")
        if leaf.name in names:
            raise DeclarationError(f"{name}: two inputs are called {leaf.name!r}")
        if leaf.name in symbols:
            raise DeclarationError(
                f"{name}: {leaf.name!r} names both an input and a dimension; rename one"
            )
        names.add(leaf.name)


def _resolve(name: str, expression: Node, leaves: Sequence[Leaf]) -> Node:
    """Replace the leaves of an expression by the declared inputs, and symbols of dimensions by
    their values as numbers. SymPy's symbols have no structure and take the declared one."""
    declared = {leaf.name: leaf for leaf in leaves}
    symbols = {str(s) for leaf in leaves for size in leaf.shape for s in size.free_symbols}
    replacements: dict[Node, Node] = {}
    for node in topological([expression]):
        if not isinstance(node, Leaf):
            continue
        leaf = declared.get(node.name)
        symbolic = node.role == "symbol"
        if leaf is None and symbolic and not node.shape and node.name in symbols:
            replacements[node] = full(dimensions.symbol(node.name))
        elif leaf is None:
            raise DeclarationError(
                f"{name}: the expression uses {node.name!r}, which is not among the inputs "
                f"({', '.join(declared)}); add it to inputs"
            )
        elif leaf.shape != node.shape:
            raise ShapeError(
                f"{name}: {node.name} is declared with shape {shape_text(leaf.shape)} and used "
                f"with shape {shape_text(node.shape)}"
            )
        elif leaf.structure != node.structure and not symbolic:
            raise DeclarationError(
                f"{name}: {node.name} is {leaf.structure} in inputs and {node.structure} in the "
                "expression; declare it once, with one structure"
            )
        elif leaf is not node:
            replacements[node] = leaf
    return substitute([expression], replacements)[0] if replacements else expression


def _require_used(name: str, leaves: Sequence[Leaf], expression: Node) -> None:
    below = set(topological([expression]))
    for leaf in leaves:
        if leaf not in below:
            raise DeclarationError(
                f"{name}: the input {leaf.name!r} is never used; remove it from inputs"
            )


def _check_scalar_functions(expression: Node) -> None:
    """Raise UnsupportedError for an elementwise function without a kernel."""
    for node in topological([expression]):
        if isinstance(node, Map):
            require_kernel(node.expression)


def _names(name: str, argument: str, values: Sequence[Any], names: Sequence[str]) -> list[str]:
    selected: list[str] = []
    for value in _sequence(name, argument, values):
        name_given = value if isinstance(value, str) else getattr(value, "name", shown(value))
        if name_given not in names:
            raise DeclarationError(
                f"{name}: {argument} names {shown(name_given)}, which is not among the inputs "
                f"({', '.join(names)})"
            )
        if name_given in selected:
            raise DeclarationError(f"{name}: {argument} names {shown(name_given)} twice")
        selected.append(name_given)
    return selected


def _kinds(name: str, kinds: Any, valid: Sequence[str]) -> list[str]:
    """The names in `kinds`. Raises DeclarationError unless it is a list of `valid` names."""
    choices = f"choose from {', '.join(valid)}"
    names = [kinds] if isinstance(kinds, str) else kinds
    if not isinstance(names, Sequence) or not names:
        raise DeclarationError(f"{name}: kinds is {shown(kinds)}, expected a list; {choices}")
    for kind in names:
        if not isinstance(kind, str) or kind not in valid:
            raise DeclarationError(f"{name}: kinds names {shown(kind)}; {choices}")
    return [*names]


def _with_needs(kinds: Sequence[str]) -> tuple[str, ...]:
    """Add the kinds that `kinds` need, in the usual order."""
    needs = [need for kind in kinds for need in NEEDED_KINDS.get(kind, ())]
    required = {"value", *kinds, *needs}
    return tuple(k for k in (*KINDS, *SCALAR_KINDS, *OPERATOR_KINDS) if k in required)


def _check_dimensions(name: str, leaves: Sequence[Leaf], expression: Node, stacked: bool) -> None:
    """Raise DeclarationError for a size that no input's shape gives."""
    readable = set(dimensions.readings([leaf.shape for leaf in leaves]))
    symbols = _size_symbols((), expression)
    for symbol in sorted(symbols - readable, key=str):
        raise DeclarationError(
            f"{name}: the dimension {symbol} cannot be read off the shape of any input"
        )
    if stacked and BATCH in symbols:
        raise DeclarationError(f"{name}: with batch=, no dimension may be called 'batch'")


def _size_symbols(leaves: Sequence[Leaf], expression: Node) -> set[sympy.Basic]:
    """The sizes that occur in the shapes of inputs, and anywhere in an expression."""
    return {symbol for leaf in leaves for symbol in _symbols(leaf.shape)} | size_symbols(
        [expression]
    )


def _symbols(expressions: Shape) -> set[sympy.Basic]:
    return {symbol for expression in expressions for symbol in expression.free_symbols}
