r"""The grammar: a parser from tokens to a tree, which does not interpret names.

    expression = product (("+" | "-") product)*
    product    = signed (("*" | ".*" | "/" | "./" | "\") signed)*
    signed     = ("+" | "-")* power
    power      = indexed ("'" | "[" indices "]" | ("^" | ".^") ("+" | "-")* indexed)*
    indexed    = number | text
               | ( name | call | "(" expression ")" | bars | block ) ["[" indices "]"]
    call       = name "(" argument ("," argument)* ")"
    argument   = [name ("=" | "in")] expression
    bars       = "|" expression "|" | "||" expression "||" ["_F" | "_1" | "_2"]
    block      = "[" row (";" row)* "]"          row = expression ("," expression)*
    indices    = index ("," index)*              index = expression | [e] ":" [e] [":" [e]]

The transpose and powers bind tightest and go from left to right, then the sign, as in MATLAB:
-x^2 is -(x^2), X^2' is (X^2)'.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import sympy

from derivatrix.compiler.frontends.notation.tokens import Source, Span, Token, tokenize
from derivatrix.compiler.ir import scalar_functions
from derivatrix.runtime.errors import NotationError

NORM_SUBSCRIPTS = ("_F", "_1", "_2")
"""Names that are subscripts behind the bars of a norm, as in ||X||_F."""
MAX_DEPTH = 30
"""Deepest nesting of brackets, and longest sequence of transposes, powers and indices of a
value."""


@dataclass(frozen=True)
class Tree:
    """A part of the text at `span`."""

    span: Span


@dataclass(frozen=True)
class Number(Tree):
    value: sympy.Expr


@dataclass(frozen=True)
class Text(Tree):
    text: str


@dataclass(frozen=True)
class Name(Tree):
    name: str


@dataclass(frozen=True)
class Negative(Tree):
    operand: Tree


@dataclass(frozen=True)
class Chain(Tree):
    """An operand, then operators with their right operands, applied from left to right."""

    operand: Tree
    operations: tuple[tuple[Token, Tree], ...]


@dataclass(frozen=True)
class Transposed(Tree):
    operand: Tree


@dataclass(frozen=True)
class Slice(Tree):
    """start:stop:step in an index; None where left out."""

    start: Tree | None
    stop: Tree | None
    step: Tree | None


@dataclass(frozen=True)
class Indexed(Tree):
    operand: Tree
    indices: tuple[Tree, ...]


@dataclass(frozen=True)
class Call(Tree):
    """`function` spans the function's name alone."""

    function: Name
    arguments: tuple[Tree, ...]


@dataclass(frozen=True)
class Clause(Tree):
    """An argument "name = value" or, with the sign "in", "name in value"."""

    name: Name
    sign: str
    value: Tree


@dataclass(frozen=True)
class Bars(Tree):
    """|operand| or ||operand||; kind: "", or "F", "1" or "2" for a norm with a subscript."""

    sign: str
    operand: Tree
    kind: str


@dataclass(frozen=True)
class Block(Tree):
    rows: tuple[tuple[Tree, ...], ...]


def is_transpose_sign(sign: Token, operand: Tree) -> bool:
    """Return whether ^ and its exponent are written as the transpose A^T, unless T is an input."""
    return sign.kind == "^" and isinstance(operand, Name) and operand.name == "T"


Part = TypeVar("Part")


class Parser:
    """A recursive descent parser, with a method for each rule of the grammar."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.position = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def advance(self) -> Token:
        token = self.token
        self.position += 1
        return token

    def accept(self, *kinds: str) -> Token | None:
        return self.advance() if self.token.kind in kinds else None

    def parse(self) -> Tree:
        """Read all of the text as an expression."""
        if self.token.kind == "end":
            raise self.source.error("the text is empty; expected an expression", self.token.span)
        tree = self.expression()
        if self.token.kind != "end":
            raise self.trailing()
        return tree

    def trailing(self) -> NotationError:
        """Make the error for a token after a complete expression."""
        kind = self.token.kind
        if kind in (")", "]", "|", "||"):
            message = f"{self.token.shown} closes nothing"
        elif kind in ("number", "name", "text", "("):
            message = f"expected an operator, came {self.token.shown}; products are written with *"
        elif kind == "=":
            message = "unexpected '=': an expression has no ="
        else:
            message = f"unexpected {self.token.shown}"
        return self.source.error(message, self.token.span)

    def expression(self) -> Tree:
        return self.chain(self.product, "+", "-")

    def product(self) -> Tree:
        return self.chain(self.signed, "*", ".*", "/", "./", "\\")

    def chain(self, operand: Callable[[], Tree], *operators: str) -> Tree:
        left = operand()
        operations = []
        while operator := self.accept(*operators):
            operations.append((operator, operand()))
        if not operations:
            return left
        return Chain(_span(left, operations[-1][1]), left, tuple(operations))

    def signed(self) -> Tree:
        return self.with_sign(self.power)

    def with_sign(self, operand: Callable[[], Tree]) -> Tree:
        start = self.token.span.start
        negative = False
        while sign := self.accept("+", "-"):
            negative ^= sign.kind == "-"
        tree = operand()
        return Negative(Span(start, tree.span.stop), tree) if negative else tree

    def power(self) -> Tree:
        tree = self.indexed()
        count = 0
        while token := self.accept("'", "^", ".^", "["):
            count += 1
            if count > MAX_DEPTH:
                raise self.source.error(
                    f"more than {MAX_DEPTH} of these behind a value", token.span
                )
            if token.kind == "'":
                tree = Transposed(Span(tree.span.start, token.span.stop), tree)
            elif token.kind == "[":
                tree = self.index(tree, token)
            else:
                exponent = self.with_sign(self.indexed)
                tree = Chain(_span(tree, exponent), tree, ((token, exponent),))
        return tree

    def indexed(self) -> Tree:
        tree = self.operand()
        indexed = self.token.kind == "[" and not isinstance(tree, Number)
        return self.index(tree, self.advance()) if indexed else tree

    def operand(self) -> Tree:
        token = self.advance()
        if token.kind == "number":
            if math.isinf(float(token.text)):
                raise self.source.error("this is no finite number of float64", token.span)
            return Number(token.span, _number(token.text))
        if token.kind == "text":
            return Text(token.span, token.text)
        if token.kind == "name":
            name = Name(token.span, token.text)
            opening = self.accept("(")
            return self.call(name, opening) if opening else name
        if token.kind == "(":
            inner, closing = self.bracketed(token, ")", self.expression)
            return _with_span(inner, Span(token.span.start, closing.span.stop))
        if token.kind in ("|", "||"):
            inner, closing = self.bracketed(token, token.kind, self.expression)
            is_norm = token.kind == "||"
            subscript = self.advance() if is_norm and self.token.text in NORM_SUBSCRIPTS else None
            stop = (subscript or closing).span.stop
            kind = subscript.text[1:] if subscript else ""
            return Bars(Span(token.span.start, stop), token.kind, inner, kind)
        if token.kind == "[":
            rows, closing = self.bracketed(token, "]", lambda: self.separated(";", self.row))
            return Block(Span(token.span.start, closing.span.stop), rows)
        self.position -= 1
        message = f"expected a value, came {token.shown}"
        if token.kind == "end":
            message = "the text ends where a value is expected"
        elif token.kind in (")", "]") and self.depth == 0:
            message = f"{token.shown} closes nothing"
        raise self.source.error(message, token.span)

    def call(self, name: Name, opening: Token) -> Call:
        if self.token.kind == ")":
            arguments: tuple[Tree, ...] = ()
            closing = self.advance()
        else:
            arguments, closing = self.bracketed(
                opening, ")", lambda: self.separated(",", self.argument)
            )
        return Call(Span(name.span.start, closing.span.stop), name, arguments)

    def argument(self) -> Tree:
        name = self.token
        sign = self.tokens[self.position + 1].text if name.kind == "name" else ""
        if sign not in ("=", "in"):
            return self.expression()
        self.position += 2
        value = self.expression()
        span = Span(name.span.start, value.span.stop)
        return Clause(span, Name(name.span, name.text), sign, value)

    def row(self) -> tuple[Tree, ...]:
        return self.separated(",", self.expression)

    def index(self, operand: Tree, opening: Token) -> Indexed:
        indices, closing = self.bracketed(opening, "]", lambda: self.separated(",", self.bounds))
        return Indexed(Span(operand.span.start, closing.span.stop), operand, indices)

    def bounds(self) -> Tree:
        """Read one index: an expression, or a slice."""
        start = self.token.span.start
        parts: list[Tree | None] = [None]
        if self.token.kind != ":":
            parts[0] = self.expression()
        while len(parts) < 3 and self.accept(":"):
            open_end = self.token.kind in (":", ",", "]")
            parts.append(None if open_end else self.expression())
        if len(parts) == 1 and parts[0] is not None:
            return parts[0]
        stop = self.tokens[self.position - 1].span.stop
        return Slice(Span(start, stop), *parts, *[None] * (3 - len(parts)))

    def separated(self, separator: str, part: Callable[[], Part]) -> tuple[Part, ...]:
        parts = [part()]
        while self.accept(separator):
            parts.append(part())
        return tuple(parts)

    def bracketed(
        self, opening: Token, closing: str, content: Callable[[], Part]
    ) -> tuple[Part, Token]:
        """Read the content of brackets and the closing bracket, after the opening one."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.source.error(f"more than {MAX_DEPTH} brackets deep", opening.span)
        inner = content()
        self.depth -= 1
        if token := self.accept(closing):
            return inner, token
        if self.token.kind == "end":
            raise self.source.error(f"{opening.shown} is never closed", opening.span)
        if self.token.kind in (")", "]", "|", "||"):
            message = f"{self.token.shown} does not close {opening.shown}; expected {closing!r}"
            raise self.source.error(message, self.token.span)
        raise self.trailing()


def _span(begin: Tree, end: Tree) -> Span:
    return Span(begin.span.start, end.span.stop)


def _with_span(tree: Tree, span: Span) -> Tree:
    """Copy a tree with another span, such as one that includes its brackets."""
    return type(tree)(**{**vars(tree), "span": span})


def _number(text: str) -> sympy.Expr:
    """Convert the text of a number: an integer exactly, a decimal to the nearest float64."""
    return sympy.Integer(text) if text.isdigit() else scalar_functions.number(float(text))


def parse_tree(source: Source) -> Tree:
    """Parse a text to its tree. Raises NotationError."""
    return Parser(source).parse()
