"""SymPy scalar expressions, lowered to a table in which equal values have one number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
from sympy.core.relational import Relational
from sympy.functions.elementary.miscellaneous import MinMaxBase

from derivatrix.compiler.ir import scalar_functions
from derivatrix.compiler.ir.divided_differences import Differences, program
from derivatrix.runtime.errors import UnsupportedError

FUNCTIONS = {
    **{
        getattr(sympy, name): name.lower()
        for name in (
            *("exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh"),
            *("tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "gamma", "zeta", "sign"),
            *("Abs", "floor", "Mod", "And", "Or", "Not", "Gt", "Ge", "Lt", "Le", "Eq", "Ne"),
        )
    },
    sympy.loggamma: "lgamma",
    sympy.ceiling: "ceil",
    sympy.Max: "maximum",
    sympy.Min: "minimum",
    scalar_functions.log1p: "log1p",
    scalar_functions.expm1: "expm1",
    scalar_functions.scaled_normcdf: "scaled_normcdf",
}
"""SymPy class -> operator; a target's printer spells each."""

BESSEL = {getattr(sympy, name): name for name in ("besselj", "bessely", "besseli", "besselk")}
"""Bessel functions -> prefixes of their operators, which end in "0", "1", or "v" for any order."""

ORDERED = (*BESSEL, sympy.polygamma, sympy.zeta)
"""Functions whose first argument must be a number known when the kernel is made."""

REWRITES: dict[type, Callable[..., sympy.Expr]] = {
    sympy.sec: lambda x: 1 / sympy.cos(x),
    sympy.csc: lambda x: 1 / sympy.sin(x),
    sympy.cot: lambda x: 1 / sympy.tan(x),
    sympy.sech: lambda x: 1 / sympy.cosh(x),
    sympy.csch: lambda x: 1 / sympy.sinh(x),
    sympy.coth: lambda x: 1 / sympy.tanh(x),
    sympy.sinc: lambda x: scalar_functions.spherical(0, x),
    sympy.Heaviside: lambda x, *_: (1 + sympy.sign(x)) / 2,
}
"""SymPy class -> the function expressed by FUNCTIONS."""


def require_kernel(expression: sympy.Basic) -> None:
    """Raise UnsupportedError unless kernels can compute an expression."""
    table = Scalars()
    table.lower(expression, {slot: table.name(str(slot)) for slot in expression.free_symbols})


def _rewritten(expression: sympy.Basic) -> sympy.Expr | None:
    """Express a function that no target has by those of FUNCTIONS; None for other functions."""
    kind = type(expression)
    if isinstance(expression, sympy.polygamma):
        order, x = expression.args
        if order.is_Integer and order > 0:
            return (-1) ** (order + 1) * sympy.factorial(order) * sympy.zeta(order + 1, x)
    if isinstance(expression, scalar_functions.ScalarFunction) and kind not in FUNCTIONS:
        return expression.definition()
    rewrite = REWRITES.get(kind)
    return rewrite(*expression.args) if rewrite else None


def _operation(expression: sympy.Basic) -> tuple[str, tuple[sympy.Basic, ...]]:
    """Return the operator that computes a function, and its operands."""
    kind, arguments = type(expression), expression.args
    if kind in BESSEL:
        order, x = arguments
        if order in (0, 1):
            return f"{BESSEL[kind]}{order}", (x,)
        return f"{BESSEL[kind]}v", arguments
    if kind is sympy.polygamma and arguments[0] == 0:
        return "digamma", arguments[1:]
    if kind not in FUNCTIONS:
        raise UnsupportedError(
            f"{_with_plain_slots(expression)}: no kernel computes the function {kind.__name__}; "
            "write it with functions that have one"
        )
    if isinstance(expression, MinMaxBase | sympy.And | sympy.Or):
        arguments = tuple(sorted(arguments, key=sympy.default_sort_key))
    return FUNCTIONS[kind], arguments


def _with_plain_slots(expression: sympy.Basic) -> str:
    """Print an expression with x, y, ... for its slots."""
    slots = sorted(expression.free_symbols, key=str)
    return str(expression.xreplace(dict(zip(slots, sympy.symbols("x y z u v w"), strict=False))))


Entry = tuple[str, object, tuple[int, ...]]
"""Operator, payload (a number, name, place or condition), and the numbers of the operands."""
MAX_EXPONENT = 4
"""Largest exponent of a power by whose bases quotients are multiplied in turn."""

MAX_FLATTENED = 64
"""Most parts of a sum or product that is flattened into another: repeated squaring of x*x would
give one part for each x."""


@dataclass(frozen=True)
class _Step:
    """A factor that a product is multiplied ("times") or divided ("div") by; `degree`: how the
    product grows by it (see `Scalars.degree`); `depth`: how many loops the factor depends on."""

    operator: str
    factor: int
    degree: float
    depth: int


def _alternating(steps: Sequence[_Step]) -> list[_Step]:
    """Order the factors of a product so that large and small ones alternate, and no partial product
    is much larger or smaller than both the product and 1. Factors of outer loops come first, as far
    as that allows; the first one multiplies."""
    total = sum(step.degree for step in steps)
    low, high = min(0.0, total), max(0.0, total)
    ordered, remaining, degree = list[_Step](), [*steps], 0.0
    depths = sorted({step.depth for step in steps})
    for depth in depths:
        while ready := [
            step
            for step in remaining
            if step.depth <= depth and (ordered or step.operator == "times")
        ]:
            within = [step for step in ready if low <= degree + step.degree <= high]
            degrees = [step.degree for step in ready]
            can_wait = low <= degree <= high and min(degrees) * max(degrees) >= 0
            if not within and (depth == depths[-1] or not can_wait):
                within = [s for s in ready if low - 1 <= degree + s.degree <= high + 1]
            if depth < depths[-1]:  # smaller factors wait for larger ones in inner loops
                ready = [step for step in ready if step.degree >= 0]
            if not (within or ready):
                break
            step = min(within or ready, key=lambda step: (abs(degree + step.degree), step.operator))
            ordered.append(step)
            remaining.remove(step)
            degree += step.degree
    return ordered


class Scalars:
    """A table of values. A value is referred to by its number."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._degrees: dict[int, float] = {}
        self._numbers: dict[Entry, int] = {}

    def _enter(self, operator: str, payload: object = None, children: tuple[int, ...] = ()) -> int:
        entry = (operator, payload, children)
        number = self._numbers.setdefault(entry, len(self.entries))
        if number == len(self.entries):
            self.entries.append(entry)
        return number

    def name(self, name: str, degree: float = 0.0) -> int:
        """Enter a variable; see `degree`."""
        return self._input("name", name, degree)

    def number(self, value: sympy.Expr) -> int:
        return self._enter("number", sympy.sympify(value))

    def load(self, place: Hashable, degree: float = 0.0) -> int:
        """Enter the number at a place of memory; see `degree`."""
        return self._input("load", place, degree)

    def _input(self, operator: str, payload: Hashable, degree: float) -> int:
        number = self._enter(operator, payload)
        self._degrees.setdefault(number, degree)
        return number

    def degree(self, number: int) -> float:
        """Estimate the exponent of t with which a value grows if all inputs are multiplied by t. It
        tells which values are large together, and in which order to multiply them."""
        if number not in self._degrees:
            operator, _, children = self.entries[number]
            if operator in ("choose", "where"):  # neither conditions nor zeros grow
                children = tuple(c for c in children[1:] if self.constant(c) != 0)
            degrees = [self.degree(child) for child in children]
            match operator:
                case "mul" | "times":
                    degree = sum(degrees)
                case "div":
                    degree = degrees[0] - degrees[1]
                case "pow" if (exponent := self.constant(children[1])) is not None:
                    degree = degrees[0] * float(exponent) if exponent.is_number else 0.0
                case "sqrt" | "length":
                    degree = degrees[0] / 2
                case "scaled" | "unscaled":
                    degree = degrees[0]
                case "add" | "neg" | "abs" | "entry" | "total" | "choose" | "where" | "maximum":
                    degree = max(degrees, default=0.0)
                case _:
                    degree = 0.0
            self._degrees[number] = degree
        return self._degrees[number]

    def test(self, condition: sympy.Basic) -> int:
        return self._enter("test", condition)

    def operate(self, operator: str, *children: int) -> int:
        return self._enter(operator, None, children)

    def constant(self, number: int) -> sympy.Expr | None:
        operator, payload, _ = self.entries[number]
        return payload if operator == "number" else None

    def product(self, factors: list[int], coefficient: sympy.Expr = sympy.S.One) -> int:
        """Enter coefficient * the factors; flatten products, pull out numbers and signs."""
        above: list[int] = []
        below: list[int] = []
        pending = list(reversed(factors))
        while pending:
            factor = pending.pop()
            operator, payload, children = self.entries[factor]
            if operator == "number":
                coefficient = coefficient * payload
            elif operator == "neg":
                coefficient = -coefficient
                pending.append(children[0])
            elif operator == "mul" and len(children) <= MAX_FLATTENED:
                pending.extend(reversed(children))
            elif operator == "div":
                pending.append(children[0])
                below.extend(self.factors(children[1]))
            else:
                above.append(factor)
        if coefficient == 0:
            return self.number(sympy.S.Zero)
        negative = coefficient.could_extract_minus_sign()
        coefficient = -coefficient if negative else coefficient
        if coefficient != 1:
            above.insert(0, self.number(coefficient))
        result = self._chain("mul", above)
        if below:
            result = self.operate("div", result, self._chain("mul", below))
        return self.operate("neg", result) if negative else result

    def factors(self, number: int) -> tuple[int, ...]:
        """Return the factors of a product; of another value, the value."""
        operator, _, children = self.entries[number]
        return children if operator == "mul" else (number,)

    def _chain(self, operator: str, operands: list[int]) -> int:
        if not operands:
            return self.number(sympy.S.One if operator == "mul" else sympy.S.Zero)
        return operands[0] if len(operands) == 1 else self.operate(operator, *operands)

    def sum(self, terms: list[int]) -> int:
        """Enter the sum of the terms, positive ones first; flatten nested sums, add like terms."""
        flat: list[int] = []
        for term in terms:
            operator, _, children = self.entries[term]
            if self.constant(term) != 0:
                nested = operator == "add" and len(children) <= MAX_FLATTENED
                flat.extend(children if nested else (term,))
        like: dict[tuple[int, ...], list[int]] = {}
        for term in flat:
            like.setdefault(self._coefficient(term)[1], []).append(term)
        totals = [self._total(same) for same in like.values()]
        flat = [term for term in totals if self.constant(term) != 0]
        # a first term without a sign saves a negation
        return self._chain("add", sorted(flat, key=lambda term: self.entries[term][0] == "neg"))

    def _coefficient(self, term: int) -> tuple[sympy.Expr, tuple[int, ...]]:
        """Split a term into a number and the factors of it."""
        operator, _, children = self.entries[term]
        if operator == "neg":
            number, factors = self._coefficient(children[0])
            return -number, factors
        factors = self.factors(term)
        number = self.constant(factors[0])
        return (sympy.S.One, factors) if number is None else (number, factors[1:])

    def _total(self, like: list[int]) -> int:
        """Add terms that differ in their numbers only."""
        if len(like) == 1:
            return like[0]
        numbers, factors = zip(*map(self._coefficient, like), strict=True)
        return self.product(list(factors[0]), sympy.Add(*numbers))

    def within_range(
        self, values: Iterable[int], depth: Callable[[int], int] = lambda number: 0
    ) -> list[int]:
        """Compute quotients of the values from left to right: x / y / y for x / (y y), as y² may
        exceed the range of numbers. `depth`: how many loops a value depends on."""
        changed: dict[int, int] = {}

        def change(number: int) -> int:
            if number not in changed:
                operator, _, children = self.entries[number]
                changed[number] = number
                if operator in ("mul", "div"):
                    changed[number] = self._quotient(number, change, depth)
                elif operator == "neg":
                    changed[number] = self._negative(change(children[0]))
                elif children:
                    changed[number] = self.operate(operator, *map(change, children))
            return changed[number]

        return [change(value) for value in values]

    def _negative(self, number: int) -> int:
        """Negate a value; of a quotient negate the first factor, as LLVM turns minus a product into
        one that it may reorder (see `internals.arithmetic.times`)."""
        operator, _, children = self.entries[number]
        if operator in ("times", "div") and self._is_ordered(number):
            return self.operate(operator, self._negative(children[0]), children[1])
        return self.operate("neg", number)

    def _is_ordered(self, number: int) -> bool:
        operator, _, children = self.entries[number]
        return operator == "times" or (operator == "div" and self._is_ordered(children[0]))

    def _quotient(
        self, number: int, change: Callable[[int], int], depth: Callable[[int], int]
    ) -> int:
        """Multiply and divide by the factors in the order of `_alternating`."""
        operator, _, children = self.entries[number]
        above, *below = map(self.factors, children) if operator == "div" else [children]
        above = tuple(base for factor in above for base in self._bases(factor))
        numbers = [factor for factor in above if self.constant(factor) is not None]
        steps = [_Step("times", f, self.degree(f), depth(f)) for f in above if f not in numbers]
        if not steps:
            return self.operate(operator, *map(change, children))
        for factor, count in Counter(f for part in below for f in part).items():
            step = _Step("div", factor, -self.degree(factor), depth(factor))
            if count > 1:  # faster than dividing; if y⁻¹ is infinite or 0, so is x y⁻²
                reciprocal = self.operate("div", self.number(sympy.S.One), factor)
                step = replace(step, operator="times", factor=reciprocal)
            steps += [step] * count
        if len(steps) < 3 or not any(step.degree < 0 for step in steps):
            return self.operate(operator, *map(change, children))
        start, *ordered = _alternating(steps)
        result = self._chain("mul", [*numbers, change(start.factor)])
        for step in ordered:
            result = self.operate(step.operator, result, change(step.factor))
        return result

    def _bases(self, number: int) -> tuple[int, ...]:
        """Return the equal factors of a power of at most MAX_EXPONENT; of others, the value."""
        operator, _, children = self.entries[number]
        exponent = self.constant(children[1]) if operator == "pow" else None
        if exponent is None or not exponent.is_Integer or not 0 < exponent <= MAX_EXPONENT:
            return (number,)
        return children[:1] * int(exponent)

    def length(self, square: int, parts: int) -> int:
        """Enter the root of `square`, a sum of squares that may exceed the range of numbers.
        `parts`: the sum as an expression of entries."""
        return self.operate("unscaled", self.operate("sqrt", self.scaled(parts, square)), square)

    def scaled(self, number: int, square: int) -> int:
        """Scale a sum of products by the square of the factor of `square`: in each product scale
        two factors, equal ones if there are any."""
        operator, _, children = self.entries[number]
        match operator:
            case "entry" | "total":
                return self.scaled(children[0], square)
            case "add":
                return self.sum([self.scaled(child, square) for child in children])
            case "neg":
                return self.operate("neg", self.scaled(children[0], square))
            case "div":
                return self.operate("div", self.scaled(children[0], square), children[1])
            case "pow" if self.constant(children[1]) == 2:
                return self.scaled(self.operate("mul", children[0], children[0]), square)
            case "mul":
                numbers = [child for child in children if self.constant(child) is not None]
                counts = Counter(child for child in children if self.constant(child) is None)
                half = [factor for factor, count in counts.items() for _ in range(count // 2)]
                single = [factor for factor, count in counts.items() if count % 2]
                if len(single) == 1 and not half:
                    return self.product([*numbers, self.scaled(single[0], square)])
                if half or single:
                    pair = [self.product(half)] * 2 if half else [single.pop(), single.pop()]
                    pair = [self.operate("scaled", factor, square) for factor in pair]
                    return self.product([*numbers, *pair, *single])
        return self.operate("scaled", self.operate("scaled", number, square), square)

    def lower(self, expression: sympy.Basic, slots: Mapping[sympy.Symbol, int]) -> int:
        """Enter a SymPy expression whose symbols are `slots` or sizes."""
        if expression in slots:
            return slots[expression]
        if isinstance(expression, sympy.Expr) and not expression.free_symbols & slots.keys():
            if expression.has(sympy.I, sympy.zoo):
                raise UnsupportedError(f"{expression} is no real number")
            return self.number(expression)
        if expression in (sympy.true, sympy.false):
            return self.test(expression)
        if isinstance(expression, sympy.Add):
            return self.sum([self.lower(term, slots) for term in expression.args])
        if isinstance(expression, sympy.Mul):
            return self._lower_product(expression, slots)
        if isinstance(expression, sympy.Pow):
            return self._lower_power(expression, slots)
        if isinstance(expression, sympy.Piecewise):
            return self._lower_pieces(expression, slots)
        kind = type(expression)
        if kind in ORDERED and not expression.args[0].is_number:
            raise UnsupportedError(
                f"{_with_plain_slots(expression)}: the first argument of {kind.__name__} has to be "
                "a number"
            )
        if isinstance(expression, Differences):
            return self._lower_differences(expression, slots)
        simpler = _rewritten(expression)
        if simpler is not None:
            return self.lower(simpler, slots)
        operator, arguments = _operation(expression)
        operands = [self.lower(argument, slots) for argument in arguments]
        if operator in ("floor", "ceil"):
            operands = [self._with_divisor(operand) for operand in operands]
        return self.operate(operator, *operands)

    def _with_divisor(self, number: int) -> int:
        """Divide by the denominator of a product's coefficient: x * (1 / 49) is less than 1 at
        x = 49, since both 1 / 49 and the product are rounded, and x / 49 is not."""
        operator, _, children = self.entries[number]
        if operator == "neg":
            return self.operate("neg", self._with_divisor(children[0]))
        above, *below = children if operator == "div" else (number,)
        coefficient, factors = self._coefficient(above)
        numerator, denominator = coefficient.as_numer_denom()
        if denominator == 1:
            return number
        divisor = self.product(below, denominator)
        return self.operate("div", self.product([*factors], numerator), divisor)

    def _lower_product(self, expression: sympy.Mul, slots: Mapping[sympy.Symbol, int]) -> int:
        factors, below = [], []
        for factor in expression.args:
            base, exponent = factor.as_base_exp()
            reciprocal = exponent.is_number and exponent.is_negative and base.free_symbols
            if reciprocal and isinstance(factor, sympy.Pow):
                below += [self.lower(base**part, slots) for part in divided_powers(-exponent)]
            else:
                factors.append(self.lower(factor, slots))
        result = self.product(factors)
        return self.product([self.operate("div", result, self.product(below))]) if below else result

    def _lower_power(self, expression: sympy.Pow, slots: Mapping[sympy.Symbol, int]) -> int:
        base, exponent = expression.args
        if base == sympy.E:
            return self.operate("exp", self.lower(exponent, slots))
        if exponent.is_number and exponent.is_negative:
            below = [self.lower(base**part, slots) for part in divided_powers(-exponent)]
            return self.operate("div", self.number(sympy.S.One), self._chain("mul", below))
        root = self.lower(base, slots)
        if exponent == sympy.S.Half:
            return self.operate("sqrt", root)
        if exponent.is_Rational and exponent.q == 2:
            power = self.lower(base ** (exponent - sympy.S.Half), slots)
            return self.product([power, self.operate("sqrt", root)])
        return self.operate("pow", root, self.lower(exponent, slots))

    def _lower_differences(self, expression: Differences, slots: Mapping[sympy.Symbol, int]) -> int:
        names, steps, result = program(expression.function, len(expression.args))
        points = [self.lower(point, slots) for point in expression.args]
        values = dict(zip(names, points, strict=True))
        for name, part in steps:
            values[name] = self.lower(part, values)
        return self.lower(result, values)

    def _lower_pieces(self, expression: sympy.Piecewise, slots: Mapping[sympy.Symbol, int]) -> int:
        result = self.number(sympy.nan)
        for value, condition in reversed(expression.args):
            if condition == sympy.true:
                result = self.lower(value, slots)
            else:
                test = self.lower(condition, slots)
                result = self.operate("choose", test, self.lower(value, slots), result)
        return result


def divided_powers(exponent: sympy.Expr) -> list[sympy.Expr]:
    """Split a positive exponent into exponents of powers to divide by in turn: where x / y **
    exponent is within the range of numbers, so are these powers of y."""
    if exponent <= 1:
        return [exponent]
    unit = (
        1 / sympy.Integer(exponent.q) if exponent.is_Rational and exponent.q < 3 else exponent / 2
    )
    half, odd = divmod(exponent / unit, 2)
    return [half * unit] * (2 * bool(half)) + [unit] * int(odd)


def cost(expression: sympy.Basic) -> int:
    """Estimate the number of operations; functions and divisions weigh more."""
    operations = 0
    if isinstance(expression, sympy.Pow):
        operations = 1 if expression.exp.is_Integer and expression.exp > 0 else 8
    elif isinstance(expression, sympy.Add | sympy.Mul):
        operations = len(expression.args) - 1
    elif isinstance(expression, MinMaxBase | sympy.Abs):
        operations = 2
    elif isinstance(expression, Relational | sympy.And | sympy.Or | sympy.Not):
        operations = 1
    elif isinstance(expression, sympy.Function) and not isinstance(expression, sympy.Piecewise):
        operations = 10
    return operations + sum(cost(argument) for argument in expression.args)
