"""Kernels whose results are sums over samples, as gradients by parameters are: parts of the samples
are added up by several threads, a part at a time whose temporary arrays stay in the cache.

There is a kernel for a part of the samples then, whose sums are added up: where a result is a sum
with other terms, in the result itself. Another one does what is left to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape
from derivatrix.compiler.ir.graph import rebuilt, references
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.plan.matrix_products import product_groups
from derivatrix.compiler.plan.nominal_sizes import at_large, product
from derivatrix.compiler.plan.sample_axis import (
    allows_samples_last,
    is_divisible,
    is_sum_over,
    rounded,
    uses_their_number,
    work,
)

REUSE = 20
"""How many operations on each number read make a copy of it with the samples last worth it."""
READ = 2
"""The weight of an operation, with the numbers that it takes from memory."""
STEP = 1500
"""How many operations a step takes as long as, for few samples."""
LEAST_COLUMNS = 64
"""How many samples loops along them need."""
STRUCTURES = ("diagonal", "lower", "upper", "spd", "symmetric")
Named = tuple[str, ir.Node]


@dataclass(frozen=True)
class Cut:
    """A graph cut at the sums over its samples.

    arguments: of the part's kernel, with a part's length as their first size where `sliced` says
    so; behind the others, if need be, a whole one from which the number of samples is read.
    divided: which outputs come sample by sample; parts: these, then the sums, of a part: those by
    the name of an output are what it is but for terms that are added to it, `onto`; `leaves`: the
    others, as arguments of what is left to do, `rest`: results, or what is added to them.
    work: about how many operations a sample takes; fixed: how many each part takes besides.
    columns: whether the samples should be the last axis in memory.
    products: whether products of matrices are most of the work.
    """

    samples: sympy.Symbol
    length: sympy.Symbol
    arguments: tuple[ir.Leaf, ...]
    sliced: tuple[bool, ...]
    whole: tuple[int, ...]
    divided: tuple[bool, ...]
    parts: tuple[Named, ...]
    leaves: tuple[ir.Leaf, ...]
    rest: tuple[Named, ...]
    onto: frozenset[str]
    work: sympy.Expr
    fixed: sympy.Expr
    columns: bool
    products: bool


def cut(outputs: Sequence[Named], arguments: Sequence[ir.Leaf]) -> Cut | None:
    """How arguments are cut along their first axis so that outputs are made of sums over parts of
    them; None where they are not. `outputs` are pairwise contractions, with their names."""
    first = dict.fromkeys(argument.shape[0] for argument in arguments if argument.shape)
    found = [_cut(outputs, arguments, size) for size in first if size.is_Symbol]
    return max(filter(None, found), key=lambda made: at_large(made.work), default=None)


def _cut(
    outputs: Sequence[Named], arguments: Sequence[ir.Leaf], samples: sympy.Symbol
) -> Cut | None:
    """The graph cut at the sums over axes of one size, the samples; None where it cannot be."""
    roots = [root for _, root in outputs]
    nodes = ir.topological(roots)
    along_others = any(samples in root.shape[1:] for root in roots)
    if along_others or not is_divisible(arguments, nodes, samples):
        return None
    sums = [node for node in nodes if is_sum_over(node, samples)]
    if not sums or _need_sums(nodes, sums, samples):
        return None
    divided = [samples in root.shape for root in roots]
    split = _split(outputs, sums, samples)
    inside = {term for each in split.values() for term in each[0]}
    others = [node for node in sums if node not in inside]
    leaves = [
        ir.Leaf(f"sum_{number}", node.shape or (sympy.S.One,), _structure(node), "placeholder")
        for number, node in enumerate(others)
    ]
    parts = {name: root for (name, root), flag in zip(outputs, divided, strict=True) if flag}
    parts |= {name: _added(own) for name, (own, _) in split.items() if own}
    parts |= {leaf.name: _array(node) for leaf, node in zip(leaves, others, strict=True)}
    rest = {name: _added(more) for name, (own, more) in split.items() if more or not own}
    inner = ir.topological(list(parts.values()))
    works = [work(node) for node in inner]
    products = [each for node, each in zip(inner, works, strict=True) if _is_product(node)]
    most = bool(2 * sum(map(at_large, products)) > sum(map(at_large, works)))
    made = [node for node in inner if samples in node.shape and not isinstance(node, ir.Leaf)]
    if most and not made:  # there is nothing that could stay in the cache
        return None
    adding = [product(node.shape) for node in sums]
    total = READ * sympy.expand(sympy.Add(*works, *adding))
    length = _symbol(f"{samples}_part", [*arguments, *nodes])
    read = {node: _number(leaf, node.ndim) for node, leaf in zip(others, leaves, strict=True)}
    sliced = tuple(samples in argument.shape for argument in arguments)
    whole = (sliced.index(True),) if any(uses_their_number(node, samples) for node in inner) else ()
    return Cut(
        samples,
        length,
        (
            *(_leaf(argument, samples, length) for argument in arguments),
            *(arguments[position] for position in whole),
        ),
        sliced,
        whole,
        tuple(divided),
        tuple(zip(parts, _renamed(list(parts.values()), samples, length), strict=True)),
        tuple(leaves),
        tuple(zip(rest, substitute(list(rest.values()), read), strict=True)),
        frozenset(name for name, (own, _) in split.items() if own),
        rounded(total.coeff(samples, 1)),
        rounded(total.coeff(samples, 0)),
        not most and _in_columns(inner, samples, total.coeff(samples, 1) / READ),
        most,
    )


def _split(
    outputs: Sequence[Named], sums: Sequence[ir.Node], samples: sympy.Symbol
) -> dict[str, tuple[list[ir.Node], list[ir.Node]]]:
    """The terms of each output that does not come sample by sample: sums over samples that nothing
    else needs, and others."""
    roots = [root for _, root in outputs]
    nodes = ir.topological(roots)
    uses = Counter([*roots, *(child for node in nodes for child in references(node))])

    def terms(node: ir.Node) -> list[ir.Node]:
        if isinstance(node, ir.Sum) and uses[node] == 1:
            return [term for each in node.terms for term in terms(each)]
        return [node]

    found = {}
    for name, root in outputs:
        if samples in root.shape:
            continue
        every = terms(root)
        own = [term for term in every if term in sums and uses[term] == 1]
        found[name] = own, [term for term in every if term not in own]
    return found


def _added(terms: Sequence[ir.Node]) -> ir.Node:
    return terms[0] if len(terms) == 1 else ir.Sum(tuple(terms), terms[0].shape)


def _in_columns(nodes: Sequence[ir.Node], samples: sympy.Symbol, each: sympy.Expr) -> bool:
    """Whether loops gain from running along the samples: where each number that is read is used
    many times, loops along other axes may be short."""
    leaves = [node for node in nodes if isinstance(node, ir.Leaf) and samples in node.shape]
    read = sum(at_large(product(leaf.shape[1:])) for leaf in leaves)
    suited = all(allows_samples_last(node, samples) for node in nodes)
    return suited and at_large(each) > REUSE * read


def _need_sums(nodes: Sequence[ir.Node], sums: Sequence[ir.Node], samples: sympy.Symbol) -> bool:
    """Whether entries of a sample, or other sums, need a sum."""
    after: set[ir.Node] = set()
    for node in nodes:
        if any(child in after or child in sums for child in node.children):
            if node in sums or samples in node.shape:
                return True
            after.add(node)
    return False


def _is_product(node: ir.Node) -> bool:
    return isinstance(node, ir.Einsum) and product_groups(node) is not None


def _symbol(name: str, nodes: Sequence[ir.Node]) -> sympy.Symbol:
    """A size of that name, or with underscores behind it while there is one."""
    taken = {symbol.name for node in nodes for size in node.shape for symbol in size.free_symbols}
    while name in taken:
        name += "_"
    return sympy.Symbol(name, integer=True, positive=True)


def _array(node: ir.Node) -> ir.Node:
    """A number as an array of one entry, which can be an entry of a larger one."""
    return node if node.ndim else ir.einsum([(node, ())], [0], sizes={0: sympy.S.One})


def _number(leaf: ir.Leaf, ndim: int) -> ir.Node:
    """The number in such an array."""
    return leaf if ndim else ir.einsum([(leaf, (0,))], [])


def _structure(node: ir.Node) -> str:
    known = facts(node)
    return next((name for name in STRUCTURES if name in known), "general")


def _sizes(shape: Shape, old: sympy.Symbol, length: sympy.Symbol) -> Shape:
    return tuple(length if size == old else size for size in shape)


def _leaf(leaf: ir.Leaf, old: sympy.Symbol, length: sympy.Symbol) -> ir.Leaf:
    return ir.Leaf(leaf.name, _sizes(leaf.shape, old, length), leaf.structure, leaf.role)


def _renamed(roots: Sequence[ir.Node], old: sympy.Symbol, length: sympy.Symbol) -> list[ir.Node]:
    """The roots with axes of another length; in numbers the size stays what it was."""
    resized = partial(_sizes, old=old, length=length)
    new: dict[ir.Node, ir.Node] = {}
    for node in ir.topological(roots):
        new[node] = (
            _leaf(node, old, length) if isinstance(node, ir.Leaf) else rebuilt(node, new, resized)
        )
    return [new[root] for root in roots]
