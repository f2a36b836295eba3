"""The declaration of a function: its inputs, its outputs, what to differentiate by."""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import sympy

from derivatrix.compiler.differentiate.derivation import Steps, derivation
from derivatrix.compiler.differentiate.derivatives import KINDS, SCALAR_KINDS, Derivatives
from derivatrix.compiler.formulas.names import latex_name
from derivatrix.compiler.formulas.printers.latex import aligned
from derivatrix.compiler.frontends.arguments import require_one_meaning
from derivatrix.compiler.frontends.call import call
from derivatrix.compiler.frontends.limits import require_modest, stated_depth
from derivatrix.compiler.frontends.scans import require_symbol, symbol_name
from derivatrix.compiler.ir import dimensions
from derivatrix.compiler.ir.arrays import Array, asarray
from derivatrix.compiler.ir.declaration import Declaration
from derivatrix.compiler.ir.dimensions import BATCH, shape_text
from derivatrix.compiler.ir.graph import size_symbols
from derivatrix.compiler.ir.identifiers import require_identifier, require_name, require_variable
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
        return pickled(Function, self._fields, [*self.inputs, *self.expressions])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash(self._fields)

    def __getitem__(self, output: str) -> Function:
        """Return the function of one output, called NAME_OUTPUT, of the inputs that this output
        needs.

        Raises DeclarationError for a name that is no output."""
        expressions = dict(self.outputs)
        if not self.output_names or output not in expressions:
            outputs = f"it has {', '.join(self.output_names) or 'one output without a name'}"
            raise DeclarationError(f"{self.name}: there is no output {shown(output)}; {outputs}")
        below = set(topological([expressions[output]]))
        inputs = tuple(leaf for leaf in self.inputs if leaf in below)
        names = [leaf.name for leaf in inputs]
        return Function(
            f"{self.name}_{output}",
            inputs,
            (("", expressions[output]),),
            tuple(name for name in self.wrt if name in names),
            tuple(name for name in self.batch if name in names),
            source=self.source,
        )

    @property
    def by_output(self) -> list[Function]:
        """The functions of the single outputs; the function itself if it returns an array."""
        return [self[name] for name in self.output_names] or [self]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Return the expression of the function with `arguments` for its inputs, in their order or
        by name: symbolic arrays, SymPy expressions and numbers. A named tuple of expressions for a
        function with named outputs.

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
        kind = "hessian_operator" if self.is_scalar else "jacobian_operator"
        return kind if self._selects(kind) else ""

    def _selects(self, kind: str) -> bool:
        return self.selection is None or kind in self.selection

    def with_kinds(self, kinds: Any) -> Function:
        """Return the function with `kinds` as its selection, unless that is None or there is a
        selection already. Raises DeclarationError for a kind that no function has."""
        if kinds is None or self.selection is not None:
            return self
        names = _kinds(self.name, kinds, (*KINDS, *SCALAR_KINDS, *OPERATOR_KINDS))
        return replace(self, selection=_with_needs(names))

    def formula(
        self, kind: str, wrt: Any = None, style: str = "unicode", output: str | None = None
    ) -> str:
        """Return the formula of a derivative.

        kind: one of `kinds`. wrt: an input or its name, a pair of them for a Hessian; optional
        where there is only one. output: the name of one of several outputs. style: "unicode",
        "latex", "numpy" or "index"; or "vec", "vec-latex" or "vec-numpy", in which Jacobians and
        Hessians with more than two axes are matrices ∂vec Y/∂(vec X)ᵀ. Raises DeclarationError for
        a derivative that does not exist, UnsupportedError for one without vec form or NumPy
        text."""
        with stated_depth(self.name):
            return self.derivatives.formula(kind, wrt, style, output)

    def steps(self, wrt: Any = None, style: str = "unicode", output: str | None = None) -> Steps:
        """Derive the gradient of a scalar function, or the VJP, by an input. Returns lines with a
        `text` and the `reason` for it, which print as a table.

        wrt: an input or its name; optional where there is only one. style: "unicode", "latex" or
        "index". output: the name of one of several outputs. Raises DeclarationError for an input
        or output that does not exist.
        """
        if output is not None or len(self.output_names) == 1:
            return self[output or self.output_names[0]].steps(wrt, style)
        if wrt is not None:
            (wrt,) = _names(self.name, "steps", [wrt], self.wrt)
        with stated_depth(self.name):
            return derivation(self.derivatives, wrt, style)

    def _repr_latex_(self) -> str:
        names = ", ".join(latex_name(leaf.name, "") for leaf in self.inputs)
        title = self.name.replace("_", r"\_")
        left = rf"\operatorname{{{title}}}\left({names}\right)"
        if self.output_names:
            return aligned([f"{left}:", *self.derivatives.equations("latex", ["value"])])
        return rf"$\displaystyle {left} = {self.formula('value', style='latex')}$"

    def derivative(self, *wrt: Any) -> Function:
        """Return the derivative by one input, then by the next, and so on, as a function of its
        own.

        `f.derivative("X", "X", "X")` is the third derivative, of shape (*out.shape, *X.shape,
        *X.shape, *X.shape), called f_X_X_X; with named outputs, it has the derivatives of all of
        them. It takes all inputs of this function, also those that it does not depend on, and is
        projected on the structures of the inputs like every derivative. Raises DeclarationError
        for an input that is not among `wrt` of this function.
        """
        if not wrt:
            raise DeclarationError(f"{self.name}: derivative by what? Name one or more inputs")
        # one by one: an input may occur several times
        names = [
            name for source in wrt for name in _names(self.name, "derivative", [source], self.wrt)
        ]
        with stated_depth(self.name):
            nodes = self.derivatives.repeated(names)
        title = require_name("_".join([self.name, *names]), "a derivative")
        outputs = tuple((name, node) for (name, _), node in zip(self.outputs, nodes, strict=True))
        return Function(title, self.inputs, outputs, self.wrt, self.batch, (self, tuple(names)))

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
            # generated text may call any builtin function
            while name in names or keyword.iskeyword(name) or hasattr(builtins, name):
                name += "_"
            names.add(name)
            structure = DIRECTION_STRUCTURES.get(leaf.structure, "general")
            directions[leaf] = Leaf(require_variable(name, "a direction"), leaf.shape, structure)
        with stated_depth(self.name):
            jvps = self.derivatives.along(directions)
        return Function(
            require_name(f"{self.name}_second", "the function with the second derivatives"),
            (*self.inputs, *directions.values()),
            tuple((name, jvp) for (name, _), jvp in zip(self.outputs, jvps, strict=True)),
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
        return requirements(self.expressions)

    @property
    def declaration(self) -> str:
        """The function as declared, as a NumPy expression of the inputs, batch axes included."""
        return self.declarations[""]

    @property
    def declarations(self) -> dict[str, str]:
        """`declaration` of each output, by name."""
        return self.derivatives.declarations

    @property
    def domains(self) -> dict[str, str]:
        """Input -> the structure that an operation of it requires of sample points."""
        domains: dict[str, str] = {}
        for node in topological(self.expressions):
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
    keep: Sequence[Any] = (),
) -> Function:
    """Declare a function.

    inputs: symbolic inputs (derivatrix's or SymPy's), in the order of the arguments; expr: a
    scalar or array expression of them, or a mapping or named tuple of several, by the names of
    these outputs; wrt: the inputs to differentiate by (all by default); batch: inputs that gain any
    number of leading batch axes. A symbol or its name will do. kinds: what generated modules have,
    such as ["value", "vjp"] (all by default): value, vjp, jvp, jacobian, jacobian_operator; of a
    scalar function also gradient, value_and_gradient, hessian, hvp, and hessian_operator instead of
    jacobian_operator. The value is always there, with hessian and hvp the gradient, with
    jacobian_operator the jvp, with hessian_operator the hvp. keep: inputs that the expression may
    leave unused, so that several functions have one signature; the derivative by one is zero.

    Raises DeclarationError for invalid names or symbols, ShapeError for dimensions that disagree.
    """
    require_name(name, "a function")
    try:
        expression_of_output = _named_expressions(name, expr)
        declared = [asarray(value).node for value in expression_of_output.values()]
        leaves = tuple(_input(name, value, declared) for value in _sequence(name, "inputs", inputs))
        _check_inputs(name, leaves)
        for size in sorted(_size_symbols(leaves, declared), key=str):
            require_variable(str(size), "a size")
        expressions = _resolve(name, declared, leaves)
        for node in topological(expressions):
            if isinstance(node, Map):
                require_kernel(node.expression)  # an error here, not when the module is built
    except DerivatrixError as error:
        if str(error).startswith(f"{name}:"):
            raise
        raise type(error)(f"{name}: {error}") from error
    names = [leaf.name for leaf in leaves]
    require_modest(name, expressions)
    _require_used(name, leaves, expressions, _names(name, "keep", keep, names))
    selected_wrt = names if wrt is None else _names(name, "wrt", wrt, names)
    if not selected_wrt:
        raise DeclarationError(f"{name}: wrt is empty; name at least one input")
    stacked = _names(name, "batch", batch, names)
    _check_dimensions(name, leaves, expressions, bool(stacked))
    batched = tuple(leaf_name for leaf_name in names if leaf_name in stacked)
    outputs = tuple(zip(expression_of_output, expressions, strict=True))
    declaration = Function(name, leaves, outputs, tuple(selected_wrt), batched)
    _check_outputs(declaration)
    if kinds is not None:
        operators = OPERATOR_KINDS[declaration.is_scalar]
        selected = _kinds(name, kinds, (*declaration.kinds, operators))
        declaration = replace(declaration, selection=_with_needs(selected))
    try:
        _ = declaration.requirements  # computed now, so that impossible sizes are an error here
    except DeclarationError as error:
        raise DeclarationError(f"{name}: {error}") from error
    return declaration


def derive(function: Function) -> Derivatives:
    """Return the derivatives of a function in closed form; printing them shows the formulas.

    Raises DeclarationError for what is no declared function.
    """
    return require_function(function, "derive").derivatives


def require_function(value: object, place: str) -> Function:
    """Return the value itself. Raises DeclarationError unless it is a declared function."""
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


def _named_expressions(name: str, value: Any) -> dict[str, Any]:
    """Map the names of outputs to their expressions; the only one without a name is called ""."""
    if hasattr(value, "_asdict"):
        value = value._asdict()
    if not isinstance(value, Mapping):
        return {"": value}
    if not value:
        raise DeclarationError(f"{name}: a function needs at least one output")
    for output in value:
        require_identifier(output, "an output")
        if keyword.iskeyword(output) or output.startswith("_"):
            raise DeclarationError(
                f"{output!r} cannot name an output: it is a keyword or starts with an underscore"
            )
    return dict(value)


def _check_outputs(function: Function) -> None:
    """Raise DeclarationError for an output with the name of an input, and for one that depends on
    no input of `wrt`."""
    names = [leaf.name for leaf in function.inputs]
    for output, expression in function.outputs if function.output_names else ():
        if output in names:
            raise DeclarationError(
                f"{function.name}: {output!r} names both an input and an output; rename one"
            )
        if not {leaf.name for leaf in leaves_below([expression])} & {*function.wrt}:
            raise DeclarationError(
                f"{function.name}: the output {output!r} depends on none of the inputs to "
                f"differentiate by ({', '.join(function.wrt)})"
            )


def _input(name: str, value: Any, expressions: Sequence[Node]) -> Leaf:
    """Return the leaf of an entry of `inputs`: a symbol, or the name of one in the expressions.
    Raises DeclarationError for anything else, and for names that are reserved."""
    if isinstance(value, str):
        value = _symbol_called(name, value, expressions)
    if isinstance(value, (Array, sympy.Symbol, sympy.MatrixSymbol)):
        if isinstance(value, sympy.Symbol) and value == dimensions.symbol(value.name):
            raise DeclarationError(f"{name}: {value} is a dimension, not an input")
        node = asarray(value).node
        if isinstance(node, Leaf):
            require_symbol(node, "an input")
            return Leaf(node.name, node.shape, node.structure)
    raise DeclarationError(
        f"{name}: {shown(value)} is no input; declare inputs with matrix, vector, scalar or tensor"
    )


def _symbol_called(name: str, symbol: str, expressions: Sequence[Node]) -> Array:
    """Find the leaf of the expressions called `symbol`. One with a declared structure takes
    precedence over SymPy's symbol."""
    candidates = [leaf for leaf in leaves_below(expressions) if leaf.name == symbol]
    if not candidates:
        raise DeclarationError(
            f"{name}: inputs names {shown(symbol)}, which the expression does not use"
        )
    return Array(min(candidates, key=lambda leaf: leaf.role == "symbol"))


def _check_inputs(name: str, leaves: Sequence[Leaf]) -> None:
    """Raise DeclarationError for no inputs, and for names that are taken or used twice."""
    if not leaves:
        raise DeclarationError(f"{name}: a function needs at least one input")
    names: set[str] = set()
    symbols = {str(s) for leaf in leaves for size in leaf.shape for s in size.free_symbols}
    for leaf in leaves:
        if leaf.name in RESERVED or leaf.name.startswith(("tangent_", "cotangent_", "out_")):
            raise DeclarationError(f"{name}: the input name {leaf.name!r} is taken; choose another")
        if leaf.name in names:
            raise DeclarationError(f"{name}: two inputs are called {leaf.name!r}")
        if leaf.name in symbols:
            raise DeclarationError(
                f"{name}: {leaf.name!r} names both an input and a dimension; rename one"
            )
        names.add(leaf.name)


def _resolve(name: str, expressions: Sequence[Node], leaves: Sequence[Leaf]) -> list[Node]:
    """Replace the leaves of expressions by the declared inputs, and symbols of dimensions by
    their values as numbers. SymPy's symbols have no structure and take the declared one."""
    require_one_meaning(name, [leaf for leaf in leaves_below(expressions) if leaf.role == "symbol"])
    declared = {leaf.name: leaf for leaf in leaves}
    symbols = {str(s) for leaf in leaves for size in leaf.shape for s in size.free_symbols}
    replacements: dict[Node, Node] = {}
    for node in topological(expressions):
        if not isinstance(node, Leaf):
            continue
        leaf = declared.get(node.name)
        symbolic = node.role == "symbol"
        if leaf is None and symbolic and not node.shape and node.name in symbols:
            replacements[node] = full(dimensions.symbol(node.name))
        elif leaf is None and node.role == "placeholder":
            raise DeclarationError(
                f"{name}: the expression uses a symbol of the step of a scan, "
                f"{symbol_name(node)!r}, which exists only within that step; return it "
                "from the step as an output"
            )
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
    return list(substitute(expressions, replacements) if replacements else expressions)


def _require_used(
    name: str, leaves: Sequence[Leaf], expressions: Sequence[Node], keep: Sequence[str]
) -> None:
    below = set(topological(expressions))
    for leaf in leaves:
        if leaf not in below and leaf.name not in keep:
            raise DeclarationError(
                f"{name}: the input {leaf.name!r} is never used; remove it from inputs, or name it "
                "in keep="
            )


def _names(name: str, argument: str, values: Sequence[Any], names: Sequence[str]) -> list[str]:
    """Return the names of the inputs that an argument lists, given as symbols or names. Raises
    DeclarationError for one that is not in `names`, or twice in the list."""
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
    """Return the names in `kinds`. Raises DeclarationError unless it is a list of `valid` names."""
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


def _check_dimensions(
    name: str, leaves: Sequence[Leaf], expressions: Sequence[Node], stacked: bool
) -> None:
    """Raise DeclarationError for a size that no input's shape gives."""
    readable = set(dimensions.readings([leaf.shape for leaf in leaves]))
    symbols = _size_symbols((), expressions)
    for symbol in sorted(symbols - readable, key=str):
        raise DeclarationError(
            f"{name}: the dimension {symbol} cannot be read off the shape of any input"
        )
    if stacked and BATCH in symbols:
        raise DeclarationError(f"{name}: with batch=, no dimension may be called 'batch'")


def _size_symbols(leaves: Sequence[Leaf], expressions: Sequence[Node]) -> set[sympy.Basic]:
    """Collect the sizes that occur in the shapes of inputs, and anywhere in expressions."""
    lengths = (size for leaf in leaves for size in leaf.shape)
    return size_symbols(expressions).union(*(size.free_symbols for size in lengths))
