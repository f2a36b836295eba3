"""Trees as NumPy and SciPy expressions, with only `np`, `scipy` and the names in scope."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import sympy

from derivatrix.compiler import scalars
from derivatrix.compiler.dimensions import Dimension, Shape
from derivatrix.compiler.formulas.tree import (
    Add,
    Arranged,
    Call,
    Choice,
    Contraction,
    Diag,
    Diagonal,
    Function,
    Hadamard,
    Identity,
    Literal,
    Logic,
    Mask,
    Matmul,
    Name,
    Norm,
    Number,
    Ones,
    Part,
    Power,
    Raise,
    Relation,
    Rows,
    Scale,
    Size,
    Spread,
    Total,
    Trace,
    Transpose,
    Tree,
    Triangle,
    Unit,
    Zeros,
    is_row,
)
from derivatrix.compiler.formulas.unicode import inverted, split_divisors
from derivatrix.compiler.ir import slot

TEST, SUM, PRODUCT, UNARY, POWER, ATOM = range(6)
"""How tightly a text holds together, as in Python."""

Text = tuple[str, int]


class NumPy:
    """The printer. `sizes`: what to write for a dimension's name (its name by default)."""

    def __init__(self, sizes: Mapping[str, str] | None = None) -> None:
        self.sizes = dict(sizes or {})

    def text(self, tree: Tree, least: int = TEST) -> str:
        """The text of an array of exactly the tree's shape."""
        return _held(getattr(self, f"show_{type(tree).__name__.lower()}")(tree), least)

    def loose(self, tree: Tree, least: int = TEST) -> str:
        """The text of an array that broadcasts to the tree's shape."""
        if not isinstance(tree, Spread):
            return self.text(tree, least)
        return _held(self._indexed(tree), least)

    # Sizes

    def size(self, size: Dimension) -> str:
        """A dimension as an integer expression."""
        over, under = sympy.together(size).as_numer_denom()
        text = re.sub(r"[^\W\d]\w*", lambda name: self.sizes.get(name[0], name[0]), str(over))
        return text if under == 1 else f"({text}) // {under}"

    def shape(self, shape: Shape) -> str:
        """A shape as a tuple."""
        texts = [self.size(size) for size in shape]
        return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"

    def show_size(self, tree: Size) -> Text:
        text = self.sizes.get(tree.name, tree.name)
        return text, ATOM if re.fullmatch(r"[\w.\[\]]+", text) else TEST

    # Names and numbers

    def show_name(self, tree: Name) -> Text:
        return tree.python, ATOM

    def show_number(self, tree: Number) -> Text:
        value = tree.value
        if value.is_Integer:
            return str(value), UNARY if value < 0 else ATOM
        if value.is_Rational:
            return f"{value.p} / {value.q}", PRODUCT
        if value.is_Float:
            return repr(float(value)), UNARY if value < 0 else ATOM
        return scalars.numpy_text(value), TEST

    def real(self, tree: Tree) -> str:
        """The text of a tree; an integer as a float."""
        if isinstance(tree, Number):
            return _floats(repr(float(tree.value)))
        return self.loose(tree)

    def show_literal(self, tree: Literal) -> Text:
        if tree.array.size == 0:
            return f"np.zeros({tree.array.shape})", ATOM
        return f"np.array({_floats(repr(tree.array.tolist()))})", ATOM

    def show_zeros(self, tree: Zeros) -> Text:
        return f"np.zeros({self.shape(tree.shape)})", ATOM

    def show_identity(self, tree: Identity) -> Text:
        return f"np.eye({self.size(tree.size)})", ATOM

    def show_ones(self, tree: Ones) -> Text:
        return f"np.ones({self.size(tree.size)})", ATOM

    def show_unit(self, tree: Unit) -> Text:
        return f"np.eye({self.size(tree.size)})[{self.size(tree.position)}]", ATOM

    def show_mask(self, tree: Mask) -> Text:
        sizes = f"{self.size(tree.rows)}, {self.size(tree.columns)}"
        offset = f", {-tree.offset}" if tree.offset else ""
        return f"np.tri({sizes}{offset})", ATOM

    def show_rows(self, tree: Rows) -> Text:
        count, size, start = (self.size(part) for part in (tree.count, tree.size, tree.start))
        if tree.step == 1:
            return f"np.eye({count}, {size}, {start})", ATOM
        return f"np.eye({size})[{start}::{tree.step}][:{count}]", ATOM

    # Broadcasting

    def show_spread(self, tree: Spread) -> Text:
        shape = self.shape(tree.shape)
        if not isinstance(tree.body, Number):
            return f"np.broadcast_to({self._indexed(tree)[0]}, {shape})", ATOM
        if tree.body.value == 1:
            return f"np.ones({shape})", ATOM
        return f"np.full({shape}, {self.real(tree.body)})", ATOM

    def _indexed(self, tree: Spread) -> Text:
        missing = [axis for axis in range(tree.rank) if axis not in tree.along]
        if not tree.along or max(missing) < min(tree.along):
            return self.loose(tree.body), TEST
        places = [":" if axis in tree.along else "None" for axis in range(min(tree.along), tree.rank)]
        return f"{self.text(tree.body, ATOM)}[{', '.join(places)}]", ATOM

    def show_arranged(self, tree: Arranged) -> Text:
        text = self.text(tree.body, ATOM)
        kept = [axis for axis in tree.order if axis is not None]
        if kept != sorted(kept):
            text = f"np.transpose({self.text(tree.body)}, {tuple(kept)})"
        if len(kept) < len(tree.order):
            text += f"[{', '.join('None' if axis is None else ':' for axis in tree.order)}]"
        return text, ATOM

    # Matrices

    def show_transpose(self, tree: Transpose) -> Text:
        return f"{self.text(tree.body, ATOM)}.T", ATOM

    def show_power(self, tree: Power) -> Text:
        if tree.exponent == -1:
            return f"np.linalg.inv({self.text(tree.body)})", ATOM
        if tree.exponent == 2 and isinstance(tree.body, (Name, Transpose)):
            base = self.text(tree.body, ATOM)
            return f"{base} @ {base}", PRODUCT
        return f"np.linalg.matrix_power({self.text(tree.body)}, {tree.exponent})", ATOM

    def show_matmul(self, tree: Matmul) -> Text:
        """The chain falls into segments between a column and the row after it."""
        segments: list[list[Tree]] = [[]]
        for factor in tree.factors:
            if segments[-1] and segments[-1][-1].rank == 1 and is_row(factor):
                segments.append([])
            elif segments[-1] and _is_column(segments[-1][-1]):
                segments.append([])
            segments[-1].append(factor)
        numbers = [s for s in segments if is_row(s[0]) and _is_column(s[-1])]
        vectors = [s for s in segments if s not in numbers]
        if len(vectors) == 2:
            left, right = (self._chain(segment)[0] for segment in vectors)
            outer: Text = (f"np.outer({left}, {right})", ATOM)
        elif vectors:
            outer = self._chain(vectors[0])
        else:
            outer = self._chain(numbers.pop())
        texts = [_held(self._chain(segment), POWER) for segment in numbers]
        return (" * ".join([*texts, _held(outer, PRODUCT)]), PRODUCT) if texts else outer

    def _chain(self, factors: Sequence[Tree]) -> Text:
        """A chain without an outer product; inverses become solves of what follows."""
        text = ""
        factors = self._summed(factors)
        for position, factor in enumerate(factors):
            rest = factors[position + 1 :]
            if isinstance(factor, Power) and factor.exponent == -1 and rest:
                solve = f"np.linalg.solve({self.text(factor.body)}, {self._chain(rest)[0]})"
                return (f"{text} {'*' if _scales(factors[:position]) else '@'} {solve}", PRODUCT) if text else (solve, ATOM)
            if isinstance(factor, Diag):
                vector = self.loose(factor.body, ATOM if not text else POWER)
                text = f"{text} * {vector}" if text else f"{vector}[:, None]"
            elif text:
                sign = "*" if _scales(factors[:position]) else "@"
                least = PRODUCT if isinstance(factor, Power) and sign == "@" else POWER
                text += f" {sign} {self._factor(factor, least)}"
            else:
                text = self._factor(factor, PRODUCT if rest else TEST)
        return text, PRODUCT if len(factors) > 1 else ATOM

    def _factor(self, factor: Tree, least: int) -> str:
        if isinstance(factor, _Summed):
            axis = "" if factor.axis is None else f", axis={factor.axis}"
            return f"np.sum({self.text(factor.body)}{axis})"
        return self.text(factor.body if is_row(factor) else factor, least)  # type: ignore[attr-defined]
