"""The printers of a plan's statements as Python, which targets refine."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence

import sympy
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.pycode import PythonCodePrinter

from derivatrix.compiler.emit.texts import wrapped
from derivatrix.compiler.ir.python_text import index
from derivatrix.compiler.plan.infix import Infix
from derivatrix.compiler.plan.steps import (
    Accumulate,
    Clear,
    Guard,
    Let,
    Loop,
    Plan,
    Recurrence,
    Require,
    Scalar,
    Start,
    Statement,
    Store,
)

MAX_VALUE_LENGTH = 80
"""Most characters of an assignment on one line; the loops around it indent it by up to 20."""
LARGEST_INTEGER = 2**63 - 1
"""The largest literal that compilers take for an integer."""


class Printer(Infix):
    """A printer that records the `names` in its texts: sizes, loop indices, functions, packages."""

    multiplied = False
    """True to write powers of sizes as products."""
    real = "float"
    """The type that sizes have in floating-point arithmetic."""
    library = "math"
    """The package of functions of numbers."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def named(self, *names: str) -> str:
        """Record names; return the first of them."""
        self.names.update(name.partition(".")[0] for name in names)
        return names[0]

    def index(self, expression: sympy.Basic) -> str:
        functions = (call.func.__name__ for call in expression.atoms(sympy.Function))
        self.names.update(functions, map(str, expression.free_symbols))
        return index(expression, self.multiplied)

    def function(self, operator: str) -> str:
        return self.named(super().function(operator))

    def coefficient(self, value: sympy.Expr) -> str:
        """Print a number, or arithmetic of sizes as numbers of the type `real`."""
        if value.free_symbols:
            numbers = [part for part in value.atoms(sympy.Function) if part.is_number]
            arithmetic = _Coefficients(self.real, self.library)
            text = arithmetic.doprint(value.xreplace({part: part.evalf(17) for part in numbers}))
            self.names.update(arithmetic.module_imports, map(str, value.free_symbols))
            return str(text)
        number = float(value)
        if not math.isfinite(number):  # also a large integer, as 10**400
            name = self.named("np.nan" if math.isnan(number) else "np.inf")
            return f"-{name}" if number < 0 else name
        if not value.is_Rational or max(abs(value.p), value.q) > LARGEST_INTEGER:
            return repr(number)
        if value.is_Integer:
            return str(value)
        return f"{value.p} / {value.q}" if value.q & (value.q - 1) else repr(number)

    def time_loop(self, step: Recurrence) -> str:
        """Print the head of a loop over time."""
        length = self.index(step.length)
        times = f"range({length} - 1, -1, -1)" if step.is_reversed else f"range({length})"
        return f"for {step.index} in {times}:"

    def choice(
        self, variants: Sequence[tuple[str, sympy.Expr, Plan]], call: Callable[[Plan], str]
    ) -> Iterator[str]:
        """Print the costs of variants, then the call of the first variant that costs no more than
        those after it."""
        for name, cost, _ in variants:
            yield f"{name} = {self.index(cost)}"
        *tested, (_, _, fallback) = variants
        word = "if"
        for position, (name, _, variant) in enumerate(tested, 1):
            tests = [f"{name} <= {cost_name}" for cost_name, _, _ in variants[position:]]
            yield f"{word} {' and '.join(tests)}:"
            yield f"    {call(variant)}"
            word = "elif"
        yield "else:"
        yield f"    {call(fallback)}"


class Statements(Printer):
    """A printer of statements; a subclass says what follows where a requirement does not hold."""

    nothing = "()"

    @abstractmethod
    def raised(self, failure: str) -> list[str]:
        """Print what follows where a requirement does not hold."""

    def lines(self, body: Iterable[Statement]) -> list[str]:
        """Print statements."""
        return [line for statement in body for line in self._statement(statement)]

    def number(self, value: sympy.Expr) -> str:
        """Print a number in the precision of the outputs."""
        return f"{self.named('real')}({self.coefficient(value)})"

    def _statement(self, statement: Statement) -> list[str]:
        match statement:
            case Let(name, value):
                return self._assigned(f"{name} =", value)
            case Start(name):
                return [f"{name} = {self.named('real')}(0)"]
            case Accumulate(name, value):
                return self._assigned(f"{name} +=", value)
            case Store():
                return self.stored(statement)
            case Clear(target):
                inner = ", ".join(map(self.index, target.indices))
                every = "..." if target.buffer.shape else self.nothing
                return [f"{target.buffer.name}[{inner or every}] = 0"]
            case Loop(symbol, extent, reduction, (Guard(condition, inside),), start) if (
                stop := _stop(symbol, condition)
            ) is not None:
                bounded = Loop(symbol, sympy.Min(extent, stop), reduction, inside, start)
                return self._statement(bounded)
            case Loop(symbol, extent, _, inside, start):
                bounds = [extent] if start == 0 else [start, extent]
                rounds = f"range({', '.join(map(self.index, bounds))})"
                return [f"for {symbol} in {rounds}:", *self.indented(inside)]
            case Guard(condition, inside):
                is_of_indices = isinstance(condition, sympy.Basic)
                test = self.index(condition) if is_of_indices else self.text(condition)
                return [f"if {test}:", *self.indented(inside)]
            case Require(condition, failure):
                lines = [f"    {line}" for line in self.raised(failure)]
                return [f"if not ({self.text(condition)}):", *lines]

    def stored(self, store: Store) -> list[str]:
        """Print a store."""
        sign = "+=" if store.accumulate else "="
        return self._assigned(f"{self.load(store.target)} {sign}", store.value)

    def _assigned(self, left: str, value: Scalar) -> list[str]:
        """Print an assignment."""
        # within parentheses, Python reads a line that ends at any space on
        lines = wrapped(self.text(value), MAX_VALUE_LENGTH - len(left))
        if len(lines) == 1:
            return [f"{left} {lines[0]}"]
        return [f"{left} (", *(f"    {line}" for line in lines), ")"]

    def indented(self, body: Iterable[Statement]) -> list[str]:
        """Print the statements within another one."""
        return [f"    {line}" for line in self.lines(body)]


def _stop(symbol: sympy.Symbol, condition: sympy.Basic) -> sympy.Expr | None:
    """Return the end of a loop whose condition is index <= a bound; None for other conditions."""
    if not isinstance(condition, sympy.GreaterThan):
        return None
    bound = sympy.expand(condition.lhs - condition.rhs + symbol)
    return None if bound.has(symbol) else bound + 1


class _Coefficients(PythonCodePrinter):
    """Arithmetic of sizes in floating point: Numba computes integer ** -2 as an integer, 0, and
    raises ZeroDivisionError for 0.0 ** -2. real: the type that sizes become; library: the package
    of functions."""

    def __init__(self, real: str, library: str) -> None:
        super().__init__({"fully_qualified_modules": True})
        self._real, self._library = real, library

    def _module_format(self, fqn: str, register: bool = True) -> str:
        package, _, name = fqn.rpartition(".")
        return str(super()._module_format(f"{self._library}.{name}" if package else name, register))

    def _print_Pow(self, power: sympy.Pow, rational: bool = False) -> str:
        if power.exp.is_Integer and power.exp < -1:
            return f"(1/{self.parenthesize(power.base**-power.exp, PRECEDENCE['Mul'])})"
        return str(super()._print_Pow(power, rational))

    def _print_Symbol(self, symbol: sympy.Symbol) -> str:
        return f"{self._real}({symbol.name})"
