"""Solutions of linear equations, and operations such as decompositions, by helper kernels."""

from __future__ import annotations

from collections.abc import Sequence

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.operation import Equation
from derivatrix.compiler.plan import solvers
from derivatrix.compiler.plan.failures import failure_text, short_formula
from derivatrix.compiler.plan.loop_nest import View
from derivatrix.compiler.plan.loop_steps import LoopSteps
from derivatrix.compiler.plan.matrix_products import axes_order, product_groups
from derivatrix.compiler.plan.nominal_sizes import is_small, product
from derivatrix.compiler.plan.stacked_segments import broadcast
from derivatrix.compiler.plan.steps import Buffer, Newton, Operand
from derivatrix.compiler.plan.uses import needed_inverses, reused_inverses
from derivatrix.compiler.plan.workspace import Setting, first_last, stack_operand
from derivatrix.runtime.errors import UnsupportedError

Factorisation = tuple[solvers.Solver, tuple[Operand, ...]]
"""The kernels for a kind of matrix, and the factored matrices that are their operands."""


class OperationSteps(LoopSteps):
    """The steps of solutions of equations and of operations."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._inverses = needed_inverses(self._nodes, setting.roots)
        self._inverses |= reused_inverses(self._nodes, setting.facts)
        self._factored: dict[ir.Node, Factorisation] = {}
        self._invertible: set[ir.Node] = set()
        self._schur: dict[ir.Node, tuple[Operand, Operand]] = {}

    def _solved(self, node: ir.Node) -> solvers.Solve | None:
        """Match a product with an inverse that is computed by a solve. A product of matrices is not
        if the inverse itself is computed: BLAS multiplies faster than it substitutes."""
        solve = solvers.match_solve(node)
        is_computed = solve is not None and solve.inverse in self._inverses
        return None if is_computed and product_groups(node) is not None else solve

    def _preferred(self, node: ir.Node) -> Sequence[int]:
        """Choose the order of axes that suits how a node is computed, else how it is read."""
        solve = self._solved(node)
        if self._samples is not None and self._samples in node.shape:
            start = None if solve is None else solve.solved
            ranks = [(size == self._samples, axis != start) for axis, size in enumerate(node.shape)]
            return sorted(range(node.ndim), key=ranks.__getitem__)
        if solve is not None:
            return _solve_order(node, solve)
        order = [*self._orders.get(node, self._read_orders.get(node, range(node.ndim)))]
        groups = product_groups(node)
        if groups is not None and order[-1] not in groups.batch:  # BLAS writes whole matrices
            order.sort(key=lambda axis: axis not in groups.batch)
        return order

    def _stacked(self, node: ir.Node, core: int) -> Operand:
        """Return the place of a node in natural order, as a stack of arrays of `core` axes."""
        view = self._place(node, range(node.ndim))
        if not view.is_natural or view.buffer.role == "constant":
            view = self._copied(node, range(node.ndim))
        return stack_operand(view.buffer, node.shape, core)

    def _fresh_stack(
        self, shape: Shape, core: int, letter: str, kind: str = "real"
    ) -> tuple[View, Operand]:
        """Make a place for a stack of arrays of `core` axes; the samples come last."""
        if self._samples not in shape:
            view = self._fresh(shape, range(len(shape)), letter, kind)
            return view, stack_operand(view.buffer, shape, core)
        view = self._fresh(shape, first_last(len(shape)), letter, kind)
        return view, Operand(view.buffer, view.buffer.shape)

    # Factorisations

    def _factorised(self, node: ir.Apply) -> Factorisation:
        """Factorise the argument of an inverse or a determinant, once for all of its readers."""
        matrix = _broadcast(*node.arguments[0], node.stack)
        if matrix not in self._factored:
            batch_last = self._samples in node.stack
            method = solvers.choose_solver(self._facts(matrix), batch_last)
            if not method.factors:
                operands: tuple[Operand, ...] = (self._stacked(matrix, 2),)
            else:
                operands = (self._to_factor(matrix, "L" if method.definite else "LU"),)
                if method.pivots:
                    _, pivots = self._fresh_stack(matrix.shape[:-1], 1, "pivots", "integer")
                    operands = (*operands, pivots)
                failure = "" if method.checked else failure_text(node, method.failure)
                comment = f"factorise {short_formula(matrix)}"
                self._call(comment, method.kernel("factor"), *operands, failure=failure)
            self._factored[matrix] = method, operands
        return self._factored[matrix]

    def _to_factor(self, matrix: ir.Node, letter: str) -> Operand:
        """Copy a matrix that a factorisation overwrites. The copy of an argument with the samples
        last is overwritten itself, if no other step reads it."""
        if isinstance(matrix, ir.Leaf) and self._is_batch_last(matrix) and self._uses[matrix] == 1:
            buffer = self._views[matrix].buffer
            return Operand(buffer, buffer.shape)
        view, operand = self._fresh_stack(matrix.shape, 2, letter)
        self._compute(matrix, view)
        return operand

    def _inverted(self, node: ir.Apply) -> Factorisation:
        """Factorise a matrix and check, once, that it has an inverse."""
        method, operands = self._factorised(node)
        matrix = _broadcast(*node.arguments[0], node.stack)
        if method.checked and matrix not in self._invertible:
            self._invertible.add(matrix)
            failure, kernel = failure_text(node, method.failure), method.kernel("invertible")
            self._call("is there an inverse?", kernel, operands[0], failure=failure)
        return method, operands

    def _solve(self, node: ir.Einsum, solve: solvers.Solve, view: View, accumulate: bool) -> None:
        """Multiply by an inverse: write the right-hand side to `view`, then solve in place."""
        output = tuple(range(node.ndim))
        order = () if view.local else axes_order(view, output)
        if batch_last := self._samples in [node.sizes[label] for label in solve.stack]:
            order = order[-1:] + order[:-1]
        depth = len(solve.stack)
        inner = order[depth:]
        ends = inner[:1] if batch_last else (inner[:1] + inner[-1:])
        if accumulate or order[:depth] != solve.stack or solve.solved not in ends:
            best = self._preferred(node) if batch_last else _solve_order(node, solve)
            self._through(node, view, best, accumulate)
            return
        method, factors = self._inverted(solve.inverse)
        labels = [solve.contracted if label == solve.solved else label for label in output]
        sizes = dict(enumerate(node.sizes))
        right = ir.einsum(
            [solve.right], labels, node.coefficient, sizes={label: sizes[label] for label in labels}
        )
        self._compute(right, view)
        by_rows = inner[-1] == solve.solved and not batch_last
        other_sizes = tuple(node.sizes[label] for label in inner if label != solve.solved)
        size = node.sizes[solve.solved]
        matrix = (product(other_sizes), size) if by_rows else (size, product(other_sizes))
        stack = product(tuple(node.sizes[label] for label in solve.stack))
        flags = method.flags if method.definite else (*method.flags, solve.transposed)
        if by_rows:
            small_kernel = method.few_rows if is_small(matrix[0]) else ""
            kernel = method.kernel(small_kernel or "solve_rows")
        else:
            kernel = method.kernel("solve" if batch_last else "solve_columns")
        target = Operand(view.buffer, (*matrix, stack) if batch_last else (stack, *matrix))
        side = "the transpose of " if solve.transposed and not method.definite else ""
        comment = f"multiply by {side}{short_formula(solve.inverse)}"
        self._call(comment, kernel, *factors, target, *flags)

    # Operations

    def _apply(self, node: ir.Apply, view: View, accumulate: bool) -> None:
        """Compute an operation into a place whose axes are in the order that its kernel writes."""
        operation = node.operation
        batch_last = self._samples in node.stack
        if batch_last and not operation.factor_kernel:
            self._columns(node, view, accumulate)
            return
        order = first_last(node.ndim) if batch_last else tuple(range(node.ndim))
        if accumulate or (node.ndim and not view.has_order(order)):
            self._through(node, view, order, accumulate)
            return
        core = node.ndim - len(node.stack)
        target = stack_operand(view.buffer, node.shape, core)
        if batch_last:
            target = Operand(view.buffer, view.buffer.shape)
        if operation.is_inverse:
            method, factors = self._inverted(node)
            kernel = method.kernel(operation.factor_kernel)
            comment = f"invert {short_formula(node.arguments[0][0])}"
            self._call(comment, kernel, *factors, target, *method.flags)
        elif operation.factor_kernel:
            method, factors = self._factorised(node)
            self._call(operation.name, method.kernel(operation.factor_kernel), *factors, target)
        elif operation.matrix_equation is not None and operation.kernel is None:
            self._sylvester(node, target)
        elif operation.equation is not None:
            self._newton(node, operation.equation, target)
        elif operation.loop is not None:
            self._recurrence(node, operation.loop, view.buffer)
        elif operation.segments is not None:
            self._in_segments(node, view.buffer)
        else:
            self._operation(node, view.buffer)

    def _columns(self, node: ir.Apply, view: View, accumulate: bool) -> None:
        """Compute an operation on vectors whose stack comes last in memory."""
        order = self._preferred(node)
        if accumulate or axes_order(view, tuple(range(node.ndim))) != tuple(order):
            self._through(node, view, order, accumulate)
            return
        argument, _ = node.arguments[0]
        argument_view = self._place(argument, (1, 0))
        if argument_view.axes != (1, 0):
            argument_view = self._copied(argument, (1, 0))
        kernel = node.operation.columns
        assert kernel is not None
        outputs = self._output_buffers(node, view.buffer, first_last)
        operands = (Operand(buffer, buffer.shape) for buffer in (argument_view.buffer, *outputs))
        self._call(node.operation.name, kernel, *operands)

    def _newton(self, node: ir.Apply, equation: Equation, target: Operand) -> None:
        """Find a root by Newton's method, with kernels of the residual and of its Jacobian."""
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
                self._arguments(node),
                target,
                failure and f"{node.operation.formula('unicode', 0)}: {failure}",
            )
        )

    def _arguments(self, node: ir.Apply) -> tuple[Operand, ...]:
        """Return the places of an operation's arguments, each broadcast to the full stack."""
        return tuple(
            self._stacked(_broadcast(argument, labels, node.stack), argument.ndim - len(labels))
            for argument, labels in node.arguments
        )

    def _operation(self, node: ir.Apply, target: Buffer) -> None:
        """Call the kernel of an operation's record: (arguments, outputs, parameters)."""
        operation = node.operation
        if operation.kernel is None:
            raise UnsupportedError(f"the operation {operation.name} has no kernel")
        arguments = self._arguments(node)
        outputs = [
            stack_operand(buffer, sibling.shape, sibling.ndim - len(node.stack))
            for position, buffer in enumerate(self._output_buffers(node, target))
            for sibling in [node.sibling(position)]
        ]
        operands = (*arguments, *outputs, *node.parameters)
        failure = failure_text(node, operation.failure) if operation.failure else ""
        self._call(operation.name, operation.kernel, *operands, failure=failure)  # type: ignore[arg-type]

    def _sylvester(self, node: ir.Apply, target: Operand) -> None:
        """Solve A X + X B = C, where B is Aᵀ if the node has no B. A matrix and its transpose share
        one Schur form."""
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
            axes = range(matrix.ndim)
            views = [self._fresh(matrix.shape, axes, f"schur_{s}") for s in ("form", "vectors")]
            form, vectors = (stack_operand(view.buffer, matrix.shape, 2) for view in views)
            failure = failure_text(node, f"no Schur form of {short_formula(matrix)} was found")
            operands = (self._stacked(matrix, 2), form, vectors)
            self._call("factorise", "sylvester.schur", *operands, failure=failure)
            self._schur[matrix] = form, vectors
        return self._schur[matrix]


def _broadcast(node: ir.Node, labels: ir.Labels, stack: Shape) -> ir.Node:
    """Broadcast `node` to all axes of the stack; return a node that has all of them as it is, so
    that nothing is copied."""
    return node if labels == tuple(range(len(stack))) else broadcast(node, labels, stack)


def _solve_order(node: ir.Node, solve: solvers.Solve) -> tuple[int, ...]:
    """Order the axes of a solution in memory: stacked axes, then the unknowns first if they are
    first in the right-hand side, else last."""
    labels = [label for label in solve.right[1] if label not in solve.stack]
    solver_labels = (*solve.stack, solve.solved)
    other_labels = tuple(label for label in range(node.ndim) if label not in solver_labels)
    if labels and labels[0] == solve.contracted:
        return (*solve.stack, solve.solved, *other_labels)
    return (*solve.stack, *other_labels, solve.solved)
