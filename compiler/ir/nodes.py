"""The intermediate representation: an immutable, interned graph of tensor expressions.

Every node is interned: two nodes built from the same parts are one object, so common
subexpressions are shared by construction and equality is identity. Inside an `Einsum`
small integers label the axes; axis positions mean nothing beyond one node's own shape.
Constructors check shapes and nothing else; all folding lives in `simplify`.

Node kinds
- `Leaf`: an input, cotangent or tangent;
- `Constant`: a literal array;
- `Delta`, `Slice`, `Gather`, `Triangle`, `Reshape`, `Vech` (each `Structural`): arrays of zeros and
  ones given by a rule, never stored;
- `Einsum`: coefficient times a product of labelled factors, contracted;
- `Sum`: a sum of nodes of one shape (none: zeros);
- `Map`: a SymPy scalar expression, entry by entry;
- `Apply`: an operation of the registry (inverse, softmax, ...), with leading stacked axes.
"""

from __future__ import annotations

import atexit
import hashlib
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import sympy

from derivatrix.compiler.ir.content import Keyed, content
from derivatrix.compiler.ir.dimensions import Dimension, Shape, shape_text
from derivatrix.runtime.errors import ShapeError

if TYPE_CHECKING:
    from derivatrix.compiler.ir.operation import Operation

STRUCTURES = (
    *("general", "symmetric", "spd", "lower", "upper", "diagonal", "orthogonal"),
    *("positive", "nonneg", "simplex", "invertible"),
)
"""The structures that an input may be declared with; the last four only restrict sampled points."""

Labels = tuple[int, ...]
Factor = tuple["Node", Labels]

_nodes: WeakValueDictionary[tuple, Node] = WeakValueDictionary()
atexit.register(_nodes.clear)  # SymPy's numbers cannot be hashed while Python shuts down


class Node(Keyed):
    """A tensor expression.

    shape: its dimensions
    children: the nodes it is built from, each once
    fields: the arguments of its class
    key: a text that identifies its structure, the same in every process; its first digit puts nodes
    of one kind together when they are sorted
    """

    __slots__ = ("__weakref__", "children", "fields", "key", "shape")

    fields: tuple[Hashable, ...]
    shape: Shape
    key: str
    children: tuple[Node, ...]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {shape_text(self.shape)} {self.key}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.fields

    @classmethod
    def _interned(
        cls,
        fields: tuple[Hashable, ...],
        shape: Shape,
        children: Iterable[Node] = (),
        prefix: str = "",
        **attributes: Any,
    ) -> Any:
        """Return the one node of this class with these fields, and create it if it is new."""
        identity = (cls, *fields)
        node = _nodes.get(identity)
        if node is None:
            node = object.__new__(cls)
            text = f"{cls.__name__}{content(fields)}"
            digest = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
            attributes |= {
                "fields": fields,
                "shape": shape,
                "children": tuple(dict.fromkeys(children)),
                "key": f"{prefix}{digest}",
            }
            for name, value in attributes.items():
                object.__setattr__(node, name, value)
            _nodes[identity] = node
        return node

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")


class Leaf(Node):
    """A named array. `role` is "input", "cotangent", "tangent", "placeholder", or "symbol" for a
    SymPy symbol, which becomes the input of its name."""

    __slots__ = ("name", "role", "structure")
    name: str
    structure: str
    role: str

    def __new__(
        cls, name: str, shape: Shape, structure: str = "general", role: str = "input"
    ) -> Leaf:
        if structure not in STRUCTURES:
            raise ShapeError(f"{name}: unknown structure {structure!r}")
        fields = (name, shape, structure, role)
        return cls._interned(
            fields, shape, prefix=f"1{name}.", name=name, structure=structure, role=role
        )


class Constant(Node):
    """A literal array of float64. `array` is read-only."""

    __slots__ = ("array",)
    array: np.ndarray

    def __new__(cls, array: object) -> Constant:
        value = np.array(array, dtype=np.float64, order="C")
        value.flags.writeable = False
        shape = tuple(sympy.Integer(size) for size in value.shape)
        fields = (value.tobytes().hex(), value.shape)
        return cls._interned(fields, shape, prefix="2", array=value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Constant, (self.array,)


class Structural(Node):
    """An array of zeros and ones given by a rule on its indices, never stored."""

    __slots__ = ()


class Delta(Structural):
    """The identity: 1 where i == j; shape (size, size)."""

    __slots__ = ()

    def __new__(cls, size: Dimension) -> Delta:
        return cls._interned((size,), (size, size), prefix="0")


class Slice(Structural):
    """1 where j == start + step*i; shape (count, size). Contracting j takes a slice,
    contracting i puts one back into zeros."""

    __slots__ = ("start", "step")
    start: Dimension
    step: int

    def __new__(cls, count: Dimension, size: Dimension, start: Dimension, step: int) -> Slice:
        fields = (count, size, start, step)
        return cls._interned(fields, (count, size), prefix="0", start=start, step=step)


class Triangle(Structural):
    """1 where i >= j + offset; shape (rows, columns): the mask of a lower triangle."""

    __slots__ = ("offset",)
    offset: int

    def __new__(cls, rows: Dimension, columns: Dimension, offset: int = 0) -> Triangle:
        fields = (rows, columns, offset)
        return cls._interned(fields, (rows, columns), prefix="0", offset=offset)


class Gather(Structural):
    """1 where j == table[i]; shape (len(table), size). Contracting j gathers entries,
    contracting i adds them back."""

    __slots__ = ("table",)
    table: tuple[int, ...]

    def __new__(cls, table: tuple[int, ...], size: Dimension) -> Gather:
        shape = (sympy.Integer(len(table)), size)
        return cls._interned((table, size), shape, prefix="0", table=table)


class Reshape(Structural):
    """1 where k == inner*i + j; shape (outer*inner, outer, inner): two axes as one, in C order.
    Contracting i and j merges them, contracting k splits it."""

    __slots__ = ()

    def __new__(cls, outer: Dimension, inner: Dimension) -> Reshape:
        shape = (sympy.expand(outer * inner), outer, inner)
        return cls._interned((outer, inner), shape, prefix="0")


class Vech(Structural):
    """1 where k == i*(i+1)/2 + j and j <= i; shape (size*(size+1)/2, size, size): the lower
    triangle of a matrix as a vector, row by row."""

    __slots__ = ()

    def __new__(cls, size: Dimension) -> Vech:
        count = sympy.expand(size * (size + 1) / 2)
        return cls._interned((size,), (count, size, size), prefix="0")


class Einsum(Node):
    """coefficient * sum over the labels that are not output of the product of the factors.

    `factors` is a tuple of (node, labels), a label for each axis (repeats take diagonals).
    Labels 0 .. ndim-1 are the output's axes, in order; further ones are summed over.
    `sizes[label]` is the label's dimension. The result is constant along an output label that no
    factor has; a summed label that no factor has multiplies the result by its size.
    """

    __slots__ = ("coefficient", "factors", "sizes")
    coefficient: sympy.Expr
    factors: tuple[Factor, ...]
    sizes: Shape

    def __new__(
        cls, coefficient: sympy.Expr, factors: tuple[Factor, ...], sizes: Shape, ndim: int
    ) -> Einsum:
        for node, labels in factors:
            if len(labels) != node.ndim:
                raise ShapeError(f"{node!r} has {node.ndim} axes, labelled {labels}")
            for label, size in zip(labels, node.shape, strict=True):
                if sizes[label] != size:
                    raise ShapeError(f"axis of size {size} where {sizes[label]} is expected")
        return cls._interned(
            (coefficient, factors, sizes, ndim),
            sizes[:ndim],
            (node for node, _ in factors),
            prefix="4",
            coefficient=coefficient,
            factors=factors,
            sizes=sizes,
        )

    @property
    def contracted(self) -> Labels:
        """The labels summed over."""
        return tuple(range(self.ndim, len(self.sizes)))

    def scaled(self, coefficient: sympy.Expr) -> Einsum:
        """Replace the coefficient."""
        return Einsum(coefficient, self.factors, self.sizes, self.ndim)

    def with_factor(self, position: int, node: Node) -> Einsum:
        """Replace the node of the factor at a position."""
        factors = list(self.factors)
        factors[position] = (node, factors[position][1])
        return Einsum(self.coefficient, tuple(factors), self.sizes, self.ndim)


class Sum(Node):
    """The sum of `terms`, all of one shape; no terms: zeros."""

    __slots__ = ("terms",)
    terms: tuple[Node, ...]

    def __new__(cls, terms: tuple[Node, ...], shape: Shape) -> Sum:
        for term in terms:
            if term.shape != shape:
                raise ShapeError(
                    f"cannot add shapes {shape_text(shape)} and {shape_text(term.shape)}"
                )
        return cls._interned((terms, shape), shape, terms, prefix="5", terms=terms)


class Map(Node):
    """A scalar expression of `slot(0)`, `slot(1)`, ... applied entry by entry to `arguments`,
    which all have the output's shape."""

    __slots__ = ("arguments", "expression")
    expression: sympy.Expr
    arguments: tuple[Node, ...]

    def __new__(cls, expression: sympy.Expr, arguments: tuple[Node, ...]) -> Map:
        shape = arguments[0].shape
        for argument in arguments:
            if argument.shape != shape:
                raise ShapeError(
                    f"elementwise arguments of shapes {shape_text(shape)} "
                    f"and {shape_text(argument.shape)}"
                )
        fields = (expression, arguments)
        return cls._interned(
            fields, shape, arguments, prefix="3", expression=expression, arguments=arguments
        )


class Apply(Node):
    """Output number `output` of `operation` on `arguments`, a tuple of (node, stack labels).

    An argument's leading len(stack) axes are stacked: the operation acts on the remaining
    core axes for each of their values. The result has the stacked axes 0 .. s-1 first
    (of sizes `stack`), then the operation's own. `parameters` are plain hashable values.
    """

    __slots__ = ("arguments", "operation", "output", "parameters", "stack")
    operation: Operation
    arguments: tuple[Factor, ...]
    stack: Shape
    parameters: tuple[Hashable, ...]
    output: int

    def __new__(
        cls,
        operation: Operation,
        arguments: tuple[Factor, ...],
        stack: Shape = (),
        parameters: tuple[Hashable, ...] = (),
        output: int = 0,
    ) -> Apply:
        for node, labels in arguments:
            if tuple(stack[label] for label in labels) != node.shape[: len(labels)]:
                raise ShapeError(f"{operation.name}: stacked axes disagree")
        cores = tuple(node.shape[len(labels) :] for node, labels in arguments)
        shape = stack + operation.shapes(cores, parameters)[output]
        return cls._interned(
            (operation, arguments, stack, parameters, output),
            shape,
            (node for node, _ in arguments),
            prefix="3",
            operation=operation,
            arguments=arguments,
            stack=stack,
            parameters=parameters,
            output=output,
        )

    def sibling(self, output: int) -> Apply:
        """Return another output of the same operation on the same arguments."""
        return Apply(self.operation, self.arguments, self.stack, self.parameters, output)


def slot(position: int) -> sympy.Symbol:
    """Return the placeholder of a `Map`'s argument number `position`."""
    return sympy.Symbol(f"_{position}", real=True)


def power_of(node: Node) -> tuple[Node, sympy.Expr]:
    """Return base and exponent of a power, entry by entry; else the node and 1."""
    if isinstance(node, Map) and isinstance(node.expression, sympy.Pow):
        base, exponent = node.expression.args
        if base == slot(0) and exponent.is_number:
            return node.arguments[0], exponent
    return node, sympy.S.One


def used_slots(
    expression: sympy.Expr, arguments: Sequence[Node]
) -> tuple[sympy.Expr, tuple[Node, ...]]:
    """Renumber the slots in an expression without gaps; return it and their arguments."""
    positions = [i for i in range(len(arguments)) if slot(i) in expression.free_symbols]
    numbers = {slot(old): slot(new) for new, old in enumerate(positions)}
    return expression.xreplace(numbers), tuple(arguments[i] for i in positions)


def einsum(
    factors: Iterable[tuple[Node, Sequence[Hashable]]],
    output: Sequence[Hashable],
    coefficient: sympy.Expr = sympy.S.One,
    sizes: Mapping[Any, Dimension] | None = None,
) -> Einsum:
    """Build an `Einsum` from any hashable labels; `sizes` has those that no factor has."""
    factors = [(node, tuple(labels)) for node, labels in factors]
    dimensions: dict[Hashable, Dimension] = dict(sizes or {})
    for node, labels in factors:
        for label, size in zip(labels, node.shape, strict=True):
            dimensions.setdefault(label, size)
    numbers: dict[Hashable, int] = {}
    for label in [*output, *(label for _, labels in factors for label in labels), *dimensions]:
        numbers.setdefault(label, len(numbers))
    if len(set(output)) != len(output):
        raise ShapeError("an output label is repeated")
    shape = tuple(dimensions[label] for label in numbers)
    return Einsum(sympy.sympify(coefficient), relabelled(factors, numbers), shape, len(output))


def relabelled(factors: Iterable[tuple[Node, Sequence[Any]]], names: Any) -> tuple[Factor, ...]:
    """Replace each label of the factors by what `names`, a mapping or sequence, has for it."""
    return tuple((node, tuple([names[label] for label in labels])) for node, labels in factors)


def labels_of(items: Iterable[tuple[Any, Labels]]) -> list[int]:
    """List the labels of factors, or of other labelled values, in the order met."""
    return list(dict.fromkeys(label for _, labels in items for label in labels))


def zeros(shape: Shape) -> Sum:
    """Return an array of zeros."""
    return Sum((), shape)


def full(value: sympy.Expr | float, shape: Shape = ()) -> Einsum:
    """Return an array filled with one number (or a polynomial in dimensions)."""
    return Einsum(sympy.sympify(value), (), shape, len(shape))


def is_zero(node: Node) -> bool:
    return isinstance(node, Sum) and not node.terms


def literal(node: Node) -> sympy.Expr | None:
    """Return the number that fills `node` everywhere, if it is one by construction."""
    if isinstance(node, Einsum) and not node.factors and len(node.sizes) == node.ndim:
        return node.coefficient
    return sympy.S.Zero if is_zero(node) else None


def transposed(node: Node) -> Node | None:
    """Return X where `node` is X with the last two axes exchanged; None for other nodes."""
    if not isinstance(node, Einsum) or len(node.factors) != 1 or node.coefficient != 1:
        return None
    axes = tuple(range(node.ndim))
    factor, labels = node.factors[0]
    exchanged = labels == (*axes[:-2], *axes[:-3:-1])
    return factor if exchanged and not node.contracted else None


def assumed_matrix(node: Node) -> Node | None:
    """Return the matrix of which `node` assumes a structure; None for other nodes."""
    if not isinstance(node, Apply) or not node.operation.states:
        return None
    matrix, labels = node.arguments[0]
    core = range(len(node.stack), node.ndim)
    if (*labels, *core) == tuple(range(node.ndim)):
        return matrix
    return einsum([(matrix, (*labels, *core))], range(node.ndim), sizes=dict(enumerate(node.shape)))


def topological(roots: Iterable[Node]) -> list[Node]:
    """List every node below `roots`, children before parents, in a deterministic order."""
    order: list[Node] = []  # without recursion: graphs may be deeper than Python's stack
    visited: set[Node] = set()
    pending: list[tuple[Node, bool]] = [(root, False) for root in reversed(list(roots))]
    while pending:
        node, expanded = pending.pop()
        if expanded:
            order.append(node)
        elif node not in visited:
            visited.add(node)
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(node.children))
    return order


def leaves(roots: Iterable[Node]) -> list[Leaf]:
    """List the leaves below `roots`, in the order met."""
    return [node for node in topological(roots) if isinstance(node, Leaf)]
