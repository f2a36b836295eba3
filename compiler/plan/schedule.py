"""The schedule: every node that needs memory, in order, each computed by the steps that suit it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

import numpy as np
import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import references
from derivatrix.compiler.ir.operation import Equation, Kernel
from derivatrix.compiler.plan import matrix_products, solvers
from derivatrix.compiler.plan.failures import failure_text, written
from derivatrix.compiler.plan.index_arithmetic import (
    Binding,
    Constraint,
    bind,
    entry_indices,
    index_symbol,
    picked,
    split,
)
from derivatrix.compiler.plan.local_names import Names
from derivatrix.compiler.plan.loop_nest import Builder, View
from derivatrix.compiler.plan.nominal_sizes import is_small, product
from derivatrix.compiler.plan.steps import Buffer, Call, Fill, Gemm, Newton, Operand, Plan, Step
from derivatrix.compiler.plan.uses import (
    dear_inverses,
    is_elementwise,
    needed_inverses,
    read_below,
    read_orders,
    stored,
    turned,
)
from derivatrix.runtime.errors import UnsupportedError

Pair = tuple[int, ir.Labels]
Factorisation = tuple[solvers.Solver, tuple[Operand, ...]]
TRANSPOSED = {"whole": "whole", "lower": "upper", "upper": "lower"}


class Scheduler:
    """Turns nodes into steps. `steps` and `constants` are the result."""

    def __init__(
        self,
        names: Names,
        arguments: dict[ir.Node, View],
        roots: Sequence[ir.Node],
        facts: Callable[[ir.Node], frozenset[str]],
        plan: Callable[..., Plan],
        samples: sympy.Symbol | None = None,
        on_processor: bool = True,
    ) -> None:
        """facts: of a matrix; plan: of a kernel that is called on the way; samples: the axis that
        comes last in memory; on_processor: whether helpers of the CPU alone can be called."""
        self._facts = facts
        self._plan = plan
        self.steps: list[Step] = []
        self.constants: dict[str, np.ndarray] = {}
        self._names = names
        self._views = dict(arguments)
        self._stored = stored(roots)
        nodes = ir.topological(roots)
        for node in nodes:
            if isinstance(node, ir.Pick):
                self.constants[picked(node).__name__] = np.array(node.table)
        read = [child for node in nodes for child in references(node)]
        self._uses = Counter([*read, *roots])
        self._read_as = read_orders(nodes)
        self._turned = turned(nodes, roots, self._stored, self._read_as)
        self._inverses = needed_inverses(nodes, roots) | dear_inverses(nodes, facts)
        self._read_below = read_below(nodes, self._uses)
        self._factored: dict[ir.Node, Factorisation] = {}
        self._invertible: set[ir.Node] = set()
        self._schur: dict[ir.Node, tuple[Operand, Operand]] = {}
        self._onto_symmetric: set[ir.Node] = set()
        """The term that is being added to what is symmetric, if it is."""
        self._halved: set[ir.Node] = set()
        """Products one of whose factors is packed already."""
        self._samples = samples
        self._on_processor = on_processor
        for leaf in arguments:
            if self._uses[leaf] and self._is_turned(leaf):
                own = self._fresh(leaf.shape, _first_last(leaf.ndim))
                self._turn("abreast.samples_last", leaf, self._views[leaf], own)
                self._views[leaf] = own

    def output(self, node: ir.Node, view: View) -> None:
        """Compute `node` into an output; later readers find it there, or in work memory."""
        if self._is_turned(node):
            own = self._place(node)
            if own.ordered(_first_last(node.ndim)):
                self._turn("abreast.samples_first", node, own, view)
            else:
                self._dense(node, view)
            return
        self._compute(node, view)
        self._views.setdefault(node, view)

    def _is_turned(self, node: ir.Node) -> bool:
        """Whether the samples come last in work memory, but first in arguments and outputs."""
        return node.ndim > 1 and self._samples in node.shape

    def _turn(self, kernel: Kernel, node: ir.Node, source: View, target: View) -> None:
        entries = product(node.shape[1:])
        shapes = [
            (*node.shape[:1], entries) if view.natural else (entries, *node.shape[:1])
            for view in (source, target)
        ]
        operands = map(Operand, (source.buffer, target.buffer), shapes)
        self._call("the samples' place in memory", kernel, *operands)

    # Places

    def _where(self, node: ir.Node) -> View | None:
        if isinstance(node, ir.Constant) and node.ndim and node not in self._views:
            name = f"constant_{node.key[1:]}"
            self.constants[name] = node.array
            self._views[node] = View(Buffer(name, node.shape, "constant"), tuple(range(node.ndim)))
        return self._views.get(node)

    def _prepare(self, node: ir.Node) -> None:
        """Give everything a place that an entry of `node` is read from."""
        if self._where(node) is not None or isinstance(node, ir.Leaf | ir.Structural):
            return
        if node in self._stored:
            self._place(node)
            return
        for child in node.children:
            self._prepare(child)

    def _place(self, node: ir.Node, order: Sequence[int] | None = None) -> View:
        """A place for `node`, its axes in memory in the given order (axis numbers)."""
        found = self._where(node)
        if found is not None:
            return found
        if pairs := self._pairs(node):
            return self._packed(node, pairs)
        if node.ndim == 0 and not isinstance(node, ir.Apply):
            local = Buffer(self._names.numbered("a"), ())
            view = View(local, (), local=True)
        else:
            view = self._fresh(node.shape, order or self._preferred(node))
        self._compute(node, view)
        self._views[node] = view
        return view

    def _preferred(self, node: ir.Node) -> Sequence[int]:
        """The order of axes that suits how a node is computed, else how it is read."""
        solve = self._solved(node) if isinstance(node, ir.Einsum) else None
        if self._samples is not None and self._samples in node.shape:
            first = None if solve is None else solve.solved
            ranks = [(size == self._samples, axis != first) for axis, size in enumerate(node.shape)]
            return sorted(range(node.ndim), key=ranks.__getitem__)
        if solve is not None:
            return _solve_order(node, solve)
        return self._turned.get(node, self._read_as.get(node, range(node.ndim)))

    def _fresh(self, shape: Shape, order: Sequence[int], kind: str = "real") -> View:
        sizes = tuple(shape[axis] for axis in order) or (sympy.S.One,)
        buffer = Buffer(self._names.numbered("t"), sizes, kind=kind)
        return View(buffer, tuple(list(order).index(axis) for axis in range(len(shape))))

    def _abreast(self, node: ir.Einsum, stack: ir.Labels) -> bool:
        """Whether a stack of matrices is one of the samples, which come last in memory."""
        return self._samples in [node.sizes[label] for label in stack]

    # Computing

    def _compute(self, node: ir.Node, view: View, accumulate: bool = False) -> None:
        """Write `node` (or add it) to where `view` says."""
        if self._where(node) is not None:
            self._dense(node, view, accumulate)
        elif isinstance(node, ir.Sum):
            self._sum(node, view, accumulate)
        elif isinstance(node, ir.Apply):
            self._apply(node, view, accumulate)
        elif isinstance(node, ir.Einsum):
            self._einsum(node, view, accumulate)
        elif isinstance(node, ir.Structural):
            axes = tuple(range(node.ndim))
            self._reduce(ir.einsum([(node, axes)], axes), view, accumulate)
        else:
            self._dense(node, view, accumulate)

    def _dense(self, node: ir.Node, view: View, accumulate: bool = False) -> None:
        """One loop nest over all entries."""
        if self._where(node) is None:
            for child in node.children:
                self._prepare(child)
        builder = Builder(self._where, self._names, self._samples)
        at = [index_symbol(axis) for axis in range(node.ndim)]
        tree = builder.nest(view, at, builder.entry(node, at), dict(enumerate(node.shape)))
        self.steps.append(tree.build(accumulate))

    def _sum(self, node: ir.Sum, view: View, accumulate: bool) -> None:
        """Entry by entry what can be in one nest; products accumulate into the same place."""
        terms = self._flat(node)
        added = [] if view.local else [term for term in terms if self._is_added(term)]
        together = [term for term in terms if term not in added]
        symmetric = not accumulate and all(map(self._symmetric, together))
        if together or not terms:
            rest = ir.Sum(tuple(together), node.shape)
            if terms or accumulate or view.local:
                self._dense(rest, view, accumulate)
            else:
                self.steps.append(Fill(view.buffer))
            accumulate = True
        for term in sorted(added, key=self._filling):
            if symmetric:
                self._onto_symmetric.add(term)
            self._compute(term, view, accumulate)
            self._onto_symmetric.discard(term)
            accumulate = True
            symmetric = symmetric and self._symmetric(term)

    def _symmetric(self, node: ir.Node) -> bool:
        return node.ndim == 2 and "symmetric" in self._facts(node)

    def _flat(self, node: ir.Sum) -> list[ir.Node]:
        terms: list[ir.Node] = []
        for term in node.terms:
            inner = isinstance(term, ir.Sum) and self._where(term) is None
            terms += self._flat(term) if inner and self._uses[term] == 1 else [term]  # type: ignore[arg-type]
        return terms

    def _is_added(self, term: ir.Node) -> bool:
        """Whether a term of a sum is added by steps of its own, without a place of its own."""
        if self._where(term) is not None or is_elementwise(term):
            return False
        if isinstance(term, ir.Structural):
            return True
        if not isinstance(term, ir.Einsum) or self._solved(term) is not None:
            return False
        return self._uses[term] == 1 or (
            entry_indices(term).scattered and not entry_indices(term).loops
        )

    def _filling(self, term: ir.Node) -> bool:
        """Whether a term leaves gaps, so that what it is added to has to be complete before."""
        return not (isinstance(term, ir.Einsum) and matrix_products.groups(term) is not None)

    def _einsum(self, node: ir.Einsum, view: View, accumulate: bool) -> None:
        if self._forward(node, view, accumulate):
            return
        if pairs := self._pairs(node):
            self._packed(node, pairs)
        if pairs or is_elementwise(node):
            self._dense(node, view, accumulate)
            return
        solve = self._solved(node)
        groups = matrix_products.groups(node)
        if solve is not None:
            self._solve(node, solve, view, accumulate)
        elif groups is not None and self._samples not in node.sizes:
            self._gemm(node, groups, view, accumulate)
        else:
            self._reduce(node, view, accumulate)

    def _solved(self, node: ir.Einsum) -> solvers.Solve | None:
        """A product with an inverse, where it is a solve: it is not if it is a product of matrices
        and the inverse is needed anyway."""
        solve = solvers.match_solve(node)
        at_hand = solve is not None and solve.inverse in self._inverses
        return None if at_hand and matrix_products.groups(node) is not None else solve

    def _forward(self, node: ir.Einsum, view: View, accumulate: bool) -> bool:
        """Compute a scaled transpose of something used once straight into place."""
        if len(node.factors) != 1 or node.contracted:
            return False
        factor, labels = node.factors[0]
        fresh = self._where(factor) is None and self._uses[factor] <= 1
        if not fresh or is_elementwise(factor) or sorted(labels) != list(range(node.ndim)):
            return False
        if node.coefficient != 1:
            if not isinstance(factor, ir.Einsum):
                return False
            factor = factor.scaled(node.coefficient * factor.coefficient)
        axes = tuple(view.axes[label] for label in labels)
        self._compute(factor, replace(view, axes=axes), accumulate)
        return True

    def _reduce(self, node: ir.Einsum, view: View, accumulate: bool) -> None:
        """Loops over the free labels; what structural factors say is index arithmetic."""
        constraints, dense = split(node)
        for factor, _ in dense:
            self._prepare(factor)
        binding = bind(constraints, node.sizes, range(len(node.sizes)), {})
        if binding.impossible:
            if not accumulate:
                self._dense(ir.zeros(node.shape), view)
            return
        builder = Builder(self._where, self._names, self._samples)
        at = [binding.indices[label] for label in range(node.ndim)]
        read = {label for _, labels in dense for label in labels}
        used = [*at, *binding.conditions, *(binding.indices[label] for label in read)]
        symbols = {symbol for expression in used for symbol in expression.free_symbols}
        counted = [label for label in binding.loops if index_symbol(label) not in symbols]
        coefficient = sympy.Mul(node.coefficient, *(node.sizes[label] for label in counted))
        value = builder.product(coefficient, dense, binding.indices)
        loops = {label: node.sizes[label] for label in binding.loops if label not in counted}
        complete = _covered(node, constraints, binding)
        tree = builder.nest(view, at, value, loops, binding.conditions)
        if tree.scattered and complete and _by_sizes(node.coefficient):
            self._scaled(node, view, accumulate)
            return
        if not accumulate and not view.local and (not complete or tree.scattered):
            self.steps.append(Fill(view.buffer))
            meeting = any(isinstance(c, ir.Pick) and own[1] < node.ndim for c, own in constraints)
            accumulate = tree.scattered or meeting
        self.steps.append(tree.build(accumulate))

    def _scaled(self, node: ir.Einsum, view: View, accumulate: bool) -> None:
        """Sums in a place of their own, then divided by sizes, for which these may be 0: the
        quotient is nan then, as there are no entries to divide and add."""
        plain = node.scaled(sympy.S.One)
        self._place(plain)
        axes = range(node.ndim)
        self._dense(ir.einsum([(plain, axes)], axes, node.coefficient), view, accumulate)

    def _through(self, node: ir.Node, view: View, order: Sequence[int], accumulate: bool) -> None:
        """Compute in a place of its own, then copy or add."""
        own = self._fresh(node.shape, order)
        self._compute(node, own)
        self._views[node] = own
        self._dense(node, view, accumulate)

    # Matrix products

    def _gemm(
        self, node: ir.Einsum, groups: matrix_products.Groups, view: View, accumulate: bool
    ) -> None:
        output = tuple(range(node.ndim))
        symmetric = self._symmetric(node) and (not accumulate or node in self._onto_symmetric)
        if symmetric and self._on_processor and matrix_products.weighted(node) is not None:
            if _by_sizes(node.coefficient):
                self._scaled(node, view, accumulate)
                return
            if self._weighted_gram(node, view, accumulate):
                return
        target = matrix_products.as_matrix(view, output, groups.batch, groups.rows, node.sizes)
        if target is None:
            order = (*groups.batch, *groups.rows, *groups.columns)
            self._through(node, view, order, accumulate)
            return
        rows, columns = target.first, target.second
        left = self._matrix(node, 0, groups.batch, rows, groups.inner)
        right = self._matrix(node, 1, groups.batch, left.second, columns)
        symbols = [matrix_products.batch_symbol(label) for label in groups.batch]
        indices = self._names.indices(len(symbols))
        renames = {
            symbol: sympy.Symbol(name, integer=True, nonnegative=True)
            for symbol, name in zip(symbols, indices, strict=True)
        }

        def named(operand: Operand) -> Operand:
            return replace(operand, index=tuple(renames[symbol] for symbol in operand.index))

        operands = named(left.operand), left.transposed, named(right.operand), right.transposed
        triangles = (
            self._triangle(node.factors[0], groups.batch, groups.rows),
            self._triangle(node.factors[1], groups.batch, groups.inner),
        )
        if target.transposed:
            right_operand, right_transposed = operands[2:]
            operands = (right_operand, not right_transposed, operands[0], not operands[1])
            triangles = (TRANSPOSED[triangles[1]], TRANSPOSED[triangles[0]])
        part = "whole"
        core = {groups.rows, groups.columns} == {(node.ndim - 2,), (node.ndim - 1,)}
        if node in self._read_below and core and view.natural and not accumulate:
            part = "lower"
        elif symmetric:
            part = "symmetric"
        extents = tuple(
            (renames[symbol], node.sizes[label])
            for symbol, label in zip(symbols, groups.batch, strict=True)
        )
        self.steps.append(
            Gemm(
                self._described(node, view, accumulate),
                node.coefficient,
                *operands,
                accumulate,
                named(target.operand),
                extents,
                triangles,
                part,
            )
        )

    def _weighted_gram(self, node: ir.Einsum, view: View, accumulate: bool) -> bool:
        """Compute A' diag(w) A, if that is what a symmetric product is, and A's rows come one
        after the other in memory."""
        found = matrix_products.weighted(node)
        if found is None or view.local or len(view.buffer.shape) != 2:
            return False
        samples, weights = found
        rows = self._place(samples, range(2))
        if not rows.natural or isinstance(samples, ir.Constant):
            return False
        constant = isinstance(weights, ir.Constant)
        along = self._copied(weights, range(1)) if constant else self._place(weights)
        operands = Operand(rows.buffer, samples.shape), Operand(along.buffer, weights.shape)
        target = Operand(view.buffer, node.shape)
        comment = self._described(node, view, accumulate)
        self.steps.append(Call(comment, "blas.weighted_gram", (*operands, accumulate, target)))
        return True

    def _pairs(self, node: ir.Node) -> list[Pair]:
        """The factors of a product of matrices that are symmetric in two axes of the result, so
        that half of the entries are enough; last the one that is read along the last axis."""
        if not isinstance(node, ir.Einsum) or node in self._halved:
            return []
        groups = matrix_products.groups(node)
        if groups is None or groups.batch:
            return []
        last = [*self._read_as.get(node, range(node.ndim))][-1]
        found: list[Pair] = []
        for position, own in enumerate((groups.rows, groups.columns)):
            factor, labels = node.factors[position]
            pair = labels[-2:]
            known = factor.ndim > 2 and "symmetric" in self._facts(factor)
            if known and {*pair} <= {*own} and not is_small(node.sizes[pair[0]]):
                found.append((position, pair))
        found.sort(key=lambda each: last in each[1])
        return found if self._on_processor else found[:1]

    def _packed(self, node: ir.Node, pairs: Sequence[Pair]) -> View:
        """A place for a product that is symmetric in pairs of axes, each of which is one axis in
        memory; the pair that is read along the last axis is made two again, where it has loops of
        its own."""
        assert isinstance(node, ir.Einsum)
        order = list(self._read_as.get(node, range(node.ndim)))
        factors: list[tuple[ir.Node, Sequence[Hashable]]] = list(node.factors)
        for position, pair in pairs:
            factors[position] = self._half(node.factors[position], pair)
        rest = [axis for axis in order if not any(axis in pair for _, pair in pairs)]
        *_, (_, last) = pairs
        spread = self._on_processor and order[-1] in last
        first = [pair for _, pair in pairs if not spread or pair != last]
        labels = [*first, *rest, *([last] if spread else [])]
        product = ir.einsum(factors, labels, node.coefficient)
        self._halved.add(product)
        found = self._place(product, range(product.ndim))
        places = {axis: found.axes[labels.index(axis)] for axis in rest}
        for pair in first:
            places |= dict.fromkeys(pair, found.axes[labels.index(pair)])
        if spread:
            size = node.sizes[last[0]]
            whole = self._fresh((*product.shape[:-1], size, size), range(product.ndim + 1))
            places |= {axis: product.ndim - 1 + number for number, axis in enumerate(last)}
            operands = (
                _operand(found.buffer, product.shape, 1),
                _operand(whole.buffer, whole.buffer.shape, 2),
            )
            self._call("whole matrices of triangles", "blas.spread_triangles", *operands)
            found = whole
        axes = tuple(places[axis] for axis in range(node.ndim))
        self._views[node] = View(found.buffer, axes, packed=tuple(first))
        return self._views[node]

    def _half(self, factor: ir.Factor, pair: ir.Labels) -> tuple[ir.Node, Sequence[Hashable]]:
        """The lower triangles of a factor that is symmetric in its last two axes, which are one,
        labelled by both."""
        node, labels = factor
        if is_elementwise(node) and (isinstance(node, ir.Einsum) or self._uses[node] < 2):
            self._stored.discard(node)  # it is computed where it is packed
        kept = (*labels[:-2], pair)
        return ir.einsum([(ir.Pack(node.shape[-1]), (pair, *pair)), factor], kept), kept

    def _triangle(self, factor: ir.Factor, batch: ir.Labels, rows: ir.Labels) -> str:
        """What is known of a factor as a stack of matrices with these rows."""
        node, labels = factor
        known = self._facts(node) & {"lower", "upper"}
        core = labels[-2:-1], labels[-1:]
        if len(known) != 1 or not {*labels[:-2]} <= {*batch} or rows not in core:
            return "whole"
        (triangle,) = known
        return triangle if rows == core[0] else TRANSPOSED[triangle]

    def _matrix(
        self,
        node: ir.Einsum,
        position: int,
        batch: ir.Labels,
        first: ir.Labels,
        second: ir.Labels,
    ) -> matrix_products.Matrix:
        """A factor as matrices with rows over `first`, in that order; copied if need be.
        The columns' order is the caller's for the second factor, free for the first."""
        factor, labels = node.factors[position]
        order: Sequence[int] = self._turned.get(factor, range(2))
        if factor.ndim > 2:
            order = [labels.index(label) for label in (*batch, *first, *second)]
        constant = isinstance(factor, ir.Constant)
        view = self._copied(factor, order) if constant else self._place(factor, order)
        matrix = matrix_products.as_matrix(view, labels, batch, first, node.sizes)
        right_order = matrix is not None and (position == 0 or matrix.second == second)
        if matrix is None or matrix.first != first or not right_order:
            view = self._copied(factor, order)
            matrix = matrix_products.as_matrix(view, labels, batch, first, node.sizes)
        assert matrix is not None
        return matrix

    def _copied(self, node: ir.Node, order: Sequence[int]) -> View:
        view = self._fresh(node.shape, order)
        self._dense(node, view)
        return view

    def _described(self, node: ir.Einsum, view: View, accumulate: bool) -> str:
        """The product in index notation."""
        builder = Builder(self._where, self._names, self._samples)
        at = [index_symbol(label) for label in range(len(node.sizes))]
        value = builder.product(node.coefficient, node.factors, dict(enumerate(at)))
        tree = builder.nest(view, at[: node.ndim], value, dict(enumerate(node.sizes)))
        return tree.comment(accumulate)

    # Factorisations

    def _stacked(self, node: ir.Node, core: int) -> Operand:
        """The place of a node in natural order, as a stack of its last `core` axes."""
        view = self._where(node)
        if view is None:
            view = self._place(node, range(node.ndim))
        if not view.natural or view.buffer.role == "constant":
            view = self._copied(node, range(node.ndim))
        return _operand(view.buffer, node.shape, core)

    def _fresh_stack(self, shape: Shape, core: int, kind: str = "real") -> tuple[View, Operand]:
        """A place for a stack of arrays of the last `core` axes; the samples come last."""
        if self._samples not in shape:
            view = self._fresh(shape, range(len(shape)), kind)
            return view, _operand(view.buffer, shape, core)
        view = self._fresh(shape, _first_last(len(shape)), kind)
        return view, Operand(view.buffer, view.buffer.shape)

    def _factorised(self, node: ir.Apply) -> Factorisation:
        """The factorisation of the argument of an inverse or a determinant, made once."""
        matrix = _broadcast(*node.arguments[0], node.stack)
        if matrix not in self._factored:
            abreast = self._samples in node.stack
            method = solvers.choose_solver(self._facts(matrix), abreast)
            if method.factor is None:
                operands: tuple[Operand, ...] = (self._stacked(matrix, 2),)
            else:
                operands = (self._to_factor(matrix),)
                if method.pivots:
                    pivots = self._fresh_stack(matrix.shape[:-1], 1, "integer")[1]
                    operands = (*operands, pivots)
                failure = "" if method.invertible else failure_text(node, method.failure)
                self._call("factorise", method.factor, *operands, failure=failure)
            self._factored[matrix] = method, operands
        return self._factored[matrix]

    def _to_factor(self, matrix: ir.Node) -> Operand:
        """A copy of the matrix to be overwritten; the one with the samples last, where nothing
        else reads that."""
        if isinstance(matrix, ir.Leaf) and self._is_turned(matrix) and self._uses[matrix] == 1:
            own = self._views[matrix].buffer
            return Operand(own, own.shape)
        view, operand = self._fresh_stack(matrix.shape, 2)
        self._compute(matrix, view)
        return operand

    def _inverted(self, node: ir.Apply) -> Factorisation:
        """The factorisation of a matrix whose inverse is needed, found to have one."""
        method, operands = self._factorised(node)
        matrix = _broadcast(*node.arguments[0], node.stack)
        if method.invertible is not None and matrix not in self._invertible:
            self._invertible.add(matrix)
            failure = failure_text(node, method.failure)
            self._call("is there an inverse?", method.invertible, operands[0], failure=failure)
        return method, operands

    def _solve(self, node: ir.Einsum, solve: solvers.Solve, view: View, accumulate: bool) -> None:
        output = tuple(range(node.ndim))
        order = () if view.local else matrix_products.axes_order(view, output)
        if abreast := self._abreast(node, solve.stack):
            order = order[-1:] + order[:-1]
        depth = len(solve.stack)
        inner = order[depth:]
        ends = inner[:1] if abreast else (inner[:1] + inner[-1:])
        if accumulate or order[:depth] != solve.stack or solve.solved not in ends:
            best = self._preferred(node) if abreast else _solve_order(node, solve)
            self._through(node, view, best, accumulate)
            return
        method, factors = self._inverted(solve.inverse)
        labels = [solve.contracted if label == solve.solved else label for label in output]
        sizes = dict(enumerate(node.sizes))
        right = ir.einsum(
            [solve.right], labels, node.coefficient, sizes={label: sizes[label] for label in labels}
        )
        self._compute(right, view)
        by_rows = inner[-1] == solve.solved and not abreast
        others = tuple(node.sizes[label] for label in inner if label != solve.solved)
        size = node.sizes[solve.solved]
        matrix = (product(others), size) if by_rows else (size, product(others))
        stack = product(tuple(node.sizes[label] for label in solve.stack))
        flags = method.flags if method.symmetric else (*method.flags, solve.transposed)
        kernel = method.solve_rows if by_rows else method.solve_columns
        if by_rows and method.solve_few is not None and is_small(matrix[0]):
            kernel = method.solve_few
        target = Operand(view.buffer, (*matrix, stack) if abreast else (stack, *matrix))
        self._call("solve", kernel, *factors, target, *flags)

    def _call(
        self,
        comment: str,
        kernel: Kernel,
        *arguments: Operand | bool,
        failure: str = "",
    ) -> None:
        self.steps.append(Call(comment, kernel, arguments, failure))

    # Operations

    def _apply(self, node: ir.Apply, view: View, accumulate: bool) -> None:
        name = node.operation.name
        abreast = self._samples in node.stack
        if abreast and name not in solvers.FACTORED:
            self._columns(node, view, accumulate)
            return
        order = _first_last(node.ndim) if abreast else tuple(range(node.ndim))
        if accumulate or (node.ndim and not view.ordered(order)):
            self._through(node, view, order, accumulate)
            return
        core = node.ndim - len(node.stack)
        target = _operand(view.buffer, node.shape, core)
        if abreast:
            target = Operand(view.buffer, view.buffer.shape)
        if name == "inv":
            method, factors = self._inverted(node)
            self._call("invert", method.inverse, *factors, target, *method.flags)
        elif name in solvers.FACTORED:
            method, factors = self._factorised(node)
            self._call(name, method.reductions[name], *factors, target)
        elif name in solvers.BY_SCHUR_FORMS:
            self._sylvester(node, target)
        elif node.operation.equation is not None:
            self._newton(node, node.operation.equation, target)
        else:
            self._operation(node, target)

    def _columns(self, node: ir.Apply, view: View, accumulate: bool) -> None:
        """An operation on vectors, the stack of which comes last in memory."""
        order = self._preferred(node)
        if accumulate or matrix_products.axes_order(view, tuple(range(node.ndim))) != tuple(order):
            self._through(node, view, order, accumulate)
            return
        argument, _ = node.arguments[0]
        given = self._place(argument, (1, 0))
        if given.axes != (1, 0):
            given = self._copied(argument, (1, 0))
        kernel = node.operation.columns
        assert kernel is not None
        operands = (Operand(buffer, buffer.shape) for buffer in (given.buffer, view.buffer))
        self._call(node.operation.name, kernel, *operands)

    def _newton(self, node: ir.Apply, equation: Equation, target: Operand) -> None:
        """A root by Newton's method, on kernels of the residual and of its Jacobian."""
        arguments = [
            self._stacked(_broadcast(argument, labels, node.stack), argument.ndim - len(labels))
            for argument, labels in node.arguments
        ]
        key = node.operation.key.replace(".", "_")
        inputs = [*equation.given, equation.unknown]
        residual, jacobian = (
            self._plan(f"{kind}_{key}", inputs, [("out", kernel)])
            for kind, kernel in (("residual", equation.residual), ("slope", equation.jacobian))
        )
        failure = "Newton's iteration did not converge from this start" * equation.fails
        self.steps.append(
            Newton(
                f"newton_{key}",
                node.operation.formula("unicode", 0).replace("{{", "{").replace("}}", "}"),
                residual,
                jacobian,
                equation.iterations,
                tuple(arguments),
                target,
                failure and f"{node.operation.formula('unicode', 0)}: {failure}",
            )
        )

    def _operation(self, node: ir.Apply, target: Operand) -> None:
        """Any other operation, by the kernel of its record: (arguments, outputs, parameters)."""
        operation = node.operation
        if operation.kernel is None:
            raise UnsupportedError(f"the operation {operation.name} has no kernel")
        arguments = [
            self._stacked(_broadcast(argument, labels, node.stack), argument.ndim - len(labels))
            for argument, labels in node.arguments
        ]
        cores = tuple(argument.shape[len(labels) :] for argument, labels in node.arguments)
        outputs = []
        for position, core in enumerate(operation.shapes(cores, node.parameters)):
            if position == node.output:
                outputs.append(target)
                continue
            shape = node.stack + core
            view = self._fresh(shape, range(len(shape)))
            outputs.append(_operand(view.buffer, shape, len(core)))
            self._views.setdefault(node.sibling(position), view)
        operands = (*arguments, *outputs, *node.parameters)
        failure = failure_text(node, operation.failure) if operation.failure else ""
        self._call(operation.name, operation.kernel, *operands, failure=failure)  # type: ignore[arg-type]

    def _sylvester(self, node: ir.Apply, target: Operand) -> None:
        """A X + X B = C, where B is Aᵀ if only A is given. Schur forms are made once for a matrix
        and its transpose."""
        *matrices, constant = (_broadcast(*argument, node.stack) for argument in node.arguments)
        bases = [ir.transposed(matrix) or matrix for matrix in matrices]
        flags = [base is not matrix for base, matrix in zip(bases, matrices, strict=True)]
        if len(matrices) == 1:
            bases, flags = bases * 2, [flags[0], not flags[0]]
        forms = [operand for base in bases for operand in self._schur_form(base, node)]
        failure = failure_text(node, node.operation.failure)
        operands = (*forms, self._stacked(constant, 2), target)
        self._call("solve", "sylvester.schur_sylvester", *operands, *flags, failure=failure)

    def _schur_form(self, matrix: ir.Node, node: ir.Apply) -> tuple[Operand, Operand]:
        if matrix not in self._schur:
            views = [self._fresh(matrix.shape, range(matrix.ndim)) for _ in range(2)]
            form, vectors = (_operand(view.buffer, matrix.shape, 2) for view in views)
            failure = failure_text(node, f"no Schur form of {written(matrix)} was found")
            operands = (self._stacked(matrix, 2), form, vectors)
            self._call("factorise", "sylvester.schur", *operands, failure=failure)
            self._schur[matrix] = form, vectors
        return self._schur[matrix]


def _covered(node: ir.Einsum, constraints: Sequence[Constraint], binding: Binding) -> bool:
    """Whether the loops reach every entry: each output axis is a loop, or made of two, of its
    own."""
    made = {own[0]: own[1:] for c, own in constraints if isinstance(c, ir.Merge | ir.Pack)}
    triangles = {
        sympy.Ge(index_symbol(own[1]) - index_symbol(own[2]), 0)
        for c, own in constraints
        if isinstance(c, ir.Pack)
    }
    sources = [
        label
        for axis in range(node.ndim)
        for label in ((axis,) if axis in binding.loops else made.get(axis, (axis,)))
    ]
    reached = len(set(sources)) == len(sources) and set(sources) <= set(binding.loops)
    return reached and triangles == set(binding.conditions)


def _by_sizes(coefficient: sympy.Expr) -> bool:
    """Whether a coefficient divides by sizes, which may be 0."""
    return bool(coefficient.as_numer_denom()[1].free_symbols)


def _first_last(ndim: int) -> tuple[int, ...]:
    """The order of axes with the first one last."""
    return (*range(1, ndim), 0)


def _operand(buffer: Buffer, shape: Shape, core: int) -> Operand:
    """A buffer as a stack of arrays of the last `core` axes of `shape`."""
    split_at = len(shape) - core
    return Operand(buffer, (product(shape[:split_at]), *shape[split_at:]))


def _broadcast(node: ir.Node, labels: ir.Labels, stack: Shape) -> ir.Node:
    """`node` with all of the stacked axes, in order."""
    axes = range(len(stack))
    if labels == tuple(axes):
        return node
    core = range(len(stack), len(stack) + node.ndim - len(labels))
    sizes = dict(enumerate(stack))
    return ir.einsum([(node, (*labels, *core))], (*axes, *core), sizes=sizes)


def _solve_order(node: ir.Node, solve: solvers.Solve) -> tuple[int, ...]:
    """The axes of a solution in memory: stacked ones, then the order of the right-hand side
    if the unknowns come first or last in it."""
    labels = [label for label in solve.right[1] if label not in solve.stack]
    known = (*solve.stack, solve.solved)
    rest = tuple(label for label in range(node.ndim) if label not in known)
    if labels and labels[0] == solve.contracted:
        return (*solve.stack, solve.solved, *rest)
    return (*solve.stack, *rest, solve.solved)
