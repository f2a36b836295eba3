"""The declaration of a function: its inputs, its expression, what to differentiate by."""

from __future__ import annotations

import builtins
import keyword
import reprlib
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import sympy

from derivatrix.compiler import dimensions
from derivatrix.compiler.arrays import Array, asarray
from derivatrix.compiler.dimensions import Shape, shape_text
from derivatrix.compiler.indices import index
from derivatrix.compiler.ir import Apply, Einsum, Leaf, Map, Node, Select, full, topological
from derivatrix.compiler.ir import leaves as leaves_below
from derivatrix.compiler.plan.scalars import require_kernel
from derivatrix.compiler.substitute import substitute
from derivatrix.runtime.errors import DeclarationError, DerivatrixError, ShapeError

if TYPE_CHECKING:
    from derivatrix.compiler.derivatives import Derivatives

BATCH = dimensions.symbol("batch")
RESERVED = ("out", "cotangent", "tangent", "np", "scipy", "numba", "math", "batch")


class Function:
    """A declared function.

    name: a Python identifier; inputs: its leaves, in the order of the arguments; wrt: the names
    of those to differentiate by; batch: the names of those that gain a leading batch axis;
    expression: the node of the result, without the batch axis.
    """

    def __init__(
        self,
        name: str,
        inputs: tuple[Leaf, ...],
        expression: Node,
        wrt: tuple[str, ...],
        batch: tuple[str, ...],
    ) -> None:
        self.name = name
        self.inputs = inputs
        self.expression = expression
        self.wrt = wrt
        self.batch = batch

    def __repr__(self) -> str:
        arguments = ", ".join(f"{leaf.name}: {shape_text(leaf.shape)}" for leaf in self.inputs)
        return f"<function {self.name}({arguments}) -> {shape_text(self.expression.shape)}>"

    @cached_property
    def derivatives(self) -> Derivatives:
        """The derivatives in closed form."""
        from derivatrix.compiler.derivatives import Derivatives

        return Derivatives(self)

    @property
    def kinds(self) -> tuple[str, ...]:
        """What a generated module offers: value, vjp, jvp, jacobian, and for a scalar function
        gradient, value_and_gradient, hessian, hvp."""
        return self.derivatives.kinds

    def formula(self, kind: str, wrt: Any = None, style: str = "unicode") -> str:
        """The formula of a derivative.

        kind: one of `kinds`; wrt: an input (or its name), a pair of them for a Hessian; may be
        left out where there is one choice; style: "unicode", "latex", "numpy" or "index".
        Raises DeclarationError for what does not exist.
        """
        return self.derivatives.formula(kind, wrt, style)

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
        node = self.derivatives.repeated(names)
        title = "_".join([self.name, *names])
        return Function(title, self.inputs, node, self.wrt, self.batch)

    @property
    def requirements(self) -> tuple[str, ...]:
        """Conditions on the dimensions that slices, indices, divisors and operations ask for, as
        Python texts: "n >= 2", "n >= k"."""
        bounds: dict[sympy.Expr, None] = {}
        for node in topological([self.expression]):
            if isinstance(node, Select):
                first, count = node.start, node.shape[0]
                last = first + node.step * (count - 1)
                low, high = (first, last) if node.step > 0 else (last, first)
                for bound in (low, node.shape[1] - 1 - high, count):
                    bounds[sympy.expand(bound)] = None
            if isinstance(node, Einsum):
                divisor = sympy.factor(sympy.fraction(node.coefficient)[1])
                parts = [part.as_base_exp()[0] for part in sympy.Mul.make_args(divisor)]
                bounds.update((part - 1, None) for part in parts if part.is_polynomial())
            if isinstance(node, Apply):
                cores = [argument.shape[len(labels) :] for argument, labels in node.arguments]
                bounds.update((bound, None) for bound in node.operation.requires(cores))
        parts = [part for bound in bounds for part in _split(bound)]
        return _conditions([part for part in dict.fromkeys(parts) if not part.is_nonnegative])

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

    def batched(self, leaf: Leaf) -> Leaf:
        """The leaf as the generated functions take it, with its batch axis if it has one."""
        if leaf.name not in self.batch:
            return leaf
        return Leaf(leaf.name, (BATCH, *leaf.shape), leaf.structure, leaf.role)


def _split(bound: sympy.Expr) -> list[sympy.Expr]:
    """A bound that must not be negative, with each size for the least of several."""
    for least in bound.atoms(sympy.Min):
        bounds = [sympy.expand(bound.xreplace({least: size})) for size in least.args]
        if bound.coeff(least).is_positive:
            return [part for own in bounds for part in _split(own)]
        if any(own.is_nonnegative for own in bounds):
            return []
    return [bound]


def _conditions(bounds: Sequence[sympy.Expr]) -> tuple[str, ...]:
    """Polynomials that must not be negative, as conditions; of several least sizes the largest."""
    least: dict[str, int] = {}
    others = []
    for bound in bounds:
        symbols = list(bound.free_symbols)
        rest = sympy.expand(symbols[0] - bound) if len(symbols) == 1 else None
        if rest is not None and rest.is_Integer:
            name = symbols[0].name
            least[name] = max(int(rest), least.get(name, 1))
        else:
            terms = sympy.Add.make_args(bound)
            added = [term for term in terms if not term.could_extract_minus_sign()]
            taken = [-term for term in terms if term.could_extract_minus_sign()]
            others.append(f"{index(sympy.Add(*added))} >= {index(sympy.Add(*taken))}")
    return (*(f"{name} >= {size}" for name, size in sorted(least.items()) if size > 1), *others)


def function(
    name: str,
    inputs: Sequence[Any],
    expr: Any,
    wrt: Sequence[Any] | None = None,
    batch: Sequence[Any] = (),
) -> Function:
    """Declare a function.

    inputs: symbolic inputs (derivatrix's or SymPy's), in the order of the arguments; expr: a
    scalar or array expression of them; wrt: the inputs to differentiate by (all by default);
    batch: inputs that gain one leading batch axis. A symbol or its name will do.

    Raises DeclarationError for names or symbols that make no sense, ShapeError for dimensions
    that disagree.
    """
    require_name(name, "a function")
    try:
        given = asarray(expr).node
        leaves = tuple(_input(name, value, given) for value in _sequence(name, "inputs", inputs))
        _check_inputs(name, leaves)
        expression = _resolve(name, given, leaves)
        _check_scalar_functions(expression)
    except DerivatrixError as error:
        if str(error).startswith(f"{name}:"):
            raise
        raise type(error)(f"{name}: {error}") from error
    names = [leaf.name for leaf in leaves]
    _check_used(name, leaves, expression)
    chosen = names if wrt is None else _names(name, "wrt", wrt, names)
    if not chosen:
        raise DeclarationError(f"{name}: wrt is empty; name at least one input")
    stacked = _names(name, "batch", batch, names)
    _check_dimensions(name, leaves, expression, bool(stacked))
    ordered = tuple(chosen)
    return Function(name, leaves, expression, ordered, tuple(n for n in names if n in stacked))


def derive(function: Function) -> Derivatives:
    """The derivatives of a function in closed form; printing them shows the formulas.

    Raises DeclarationError for what is no declared function.
    """
    return require_function(function, "derive").derivatives


def require_function(value: object, place: str) -> Function:
    """The value itself. Raises DeclarationError unless it is a declared function."""
    if not isinstance(value, Function):
        raise DeclarationError(
            f"{place}: {reprlib.repr(value)} (of type {type(value).__name__}) is no derivatrix "
            "function; declare one with `derivatrix.function(name, inputs, expression)`"
        )
    return value


def require_name(name: object, what: str) -> None:
    """Raise DeclarationError unless `name` is usable as a Python name of its own."""
    if not isinstance(name, str) or not name.isidentifier():
        raise DeclarationError(f"the name of {what} must be a Python identifier, not {name!r}")
    plain = unicodedata.normalize("NFKC", name)
    if plain != name:
        raise DeclarationError(f"Python reads {name!r} as {plain!r}; write the name of {what} so")
    if keyword.iskeyword(name) or (keyword.issoftkeyword(name) and name != "_"):
        raise DeclarationError(f"{name!r} is a Python keyword; choose another name for {what}")
    if hasattr(builtins, name):
        raise DeclarationError(f"{name!r} shadows a Python builtin; choose another name for {what}")


def _sequence(name: str, what: str, values: Any) -> list[Any]:
    if isinstance(values, (Array, sympy.Basic, str)):
        return [values]
    if not isinstance(values, Iterable):
        raise DeclarationError(f"{name}: {what} is a list of inputs, not {values!r}")
    return list(values)


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
        f"{name}: {value!r} is no input; declare inputs with matrix, vector, scalar or tensor"
    )


def _called(name: str, known: str, expression: Node) -> Array:
    """The symbol of the expression that is called `known`, one declared with a structure first."""
    found = [leaf for leaf in leaves_below([expression]) if leaf.name == known]
    if not found:
        raise DeclarationError(f"{name}: inputs names {known!r}, which the expression does not use")
    return Array(min(found, key=lambda leaf: leaf.role == "symbol"))


def _check_inputs(name: str, leaves: Sequence[Leaf]) -> None:
    if not leaves:
        raise DeclarationError(f"{name}: a function needs at least one input")
    seen: set[str] = set()
    symbols = {str(s) for leaf in leaves for size in leaf.shape for s in size.free_symbols}
    for leaf in leaves:
        require_name(leaf.name, "an input")
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
        known = value if isinstance(value, str) else str(getattr(value, "name", value))
        if known not in names:
            raise DeclarationError(
                f"{name}: {what} names {known!r}, which is not among the inputs "
                f"({', '.join(names)})"
            )
        if known in chosen:
            raise DeclarationError(f"{name}: {what} names {known!r} twice")
        chosen.append(known)
    return chosen


def _check_dimensions(name: str, leaves: Sequence[Leaf], expression: Node, stacked: bool) -> None:
    """Every dimension must be readable off an input's shape."""
    readable = set(dimensions.readings([leaf.shape for leaf in leaves]))
    used: set[sympy.Basic] = set()
    for node in topological([expression]):
        used |= _symbols(node.shape)
        if isinstance(node, Einsum):
            used |= _symbols((node.coefficient, *node.sizes))
        if isinstance(node, Apply):
            used |= _symbols(node.stack)
        if isinstance(node, Select):
            used |= _symbols((node.start,))
    for symbol in sorted(used - readable, key=str):
        raise DeclarationError(
            f"{name}: the dimension {symbol} cannot be read off the shape of any input"
        )
    if stacked and BATCH in used:
        raise DeclarationError(f"{name}: with batch=, no dimension may be called 'batch'")


def _symbols(expressions: Shape) -> set[sympy.Basic]:
    return {symbol for expression in expressions for symbol in expression.free_symbols}
