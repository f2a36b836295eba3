"""Kernels whose results are sums over samples, as gradients by parameters are: parts of the samples
are added up by several threads, a part at a time whose temporary arrays stay in the cache.

A kernel makes the results from a part of the samples then, and those from all parts are added up.
Terms that are no sums over samples come with the first part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape, symbol
from derivatrix.compiler.ir.graph import rebuilt, references
from derivatrix.compiler.plan.matrix_products import product_groups
from derivatrix.compiler.plan.memory import entries
from derivatrix.compiler.plan.nominal_sizes import at_large, product
from derivatrix.compiler.plan.sample_axis import (
    allows_samples_last,
    is_divisible,
    is_sum_over,
    rounded,
    work,
)
from derivatrix.compiler.plan.steps import Plan, Sums

REUSE = 20
"""Operations per number read above which a batch-last copy of it pays."""
READ = 2
"""The weight of an operation, with the numbers that it takes from memory."""
STEP_OVERHEAD_OPS = 1500
"""Fixed cost of one plan step, in scalar operations."""
MIN_SAMPLES_BATCH_LAST = 64
"""Fewest samples for which the batch-last layout is used."""
Named = tuple[str, ir.Node]


def sums(
    name: str, outputs: Sequence[Named], arguments: Sequence[ir.Leaf], plan: Callable[..., Plan]
) -> Sums | None:
    """The kernels that add up parts of the samples for the kernel `name`, cut along the first axis
    of its arguments; None where its outputs are not made of such sums. `outputs` are pairwise
    contractions, with their names; `plan` makes kernels of arguments and outputs."""
    sizes = dict.fromkeys(argument.shape[0] for argument in arguments if argument.shape)
    found = [_sums(name, outputs, arguments, size, plan) for size in sizes if size.is_Symbol]
    return max(filter(None, found), key=lambda made: at_large(made.work), default=None)


def _sums(
    name: str,
    outputs: Sequence[Named],
    arguments: Sequence[ir.Leaf],
    samples: sympy.Symbol,
    plan: Callable[..., Plan],
) -> Sums | None:
    """The kernels for sums over axes of one size, the samples; None where there are no such sums,
    or entries of a sample or other sums need one."""
    roots = [root for _, root in outputs]
    nodes = ir.topological(roots)
    along_others = any(samples in root.shape[1:] for root in roots)
    if along_others or not is_divisible(arguments, nodes, samples):
        return None
    split = _split(outputs, nodes, samples)
    if split is None:
        return None
    made = {name: _added(own or first) for name, (own, first) in split.items()}
    added = [name for name, (own, _) in split.items() if own and samples not in made[name].shape]
    first = [(name, _added(more)) for name, (_, more) in split.items() if more]
    inner = ir.topological([root for name, root in made.items() if split[name][0]])
    works = [work(node) for node in inner]
    products = [each for node, each in zip(inner, works, strict=True) if product_groups(node)]
    most = bool(2 * sum(map(at_large, products)) > sum(map(at_large, works)))
    cut = [node for node in inner if samples in node.shape and not isinstance(node, ir.Leaf)]
    if not added or (most and not cut):  # there is nothing that could stay in the cache
        return None
    summed = [node for node in inner if is_sum_over(node, samples)]
    total = READ * sympy.expand(sympy.Add(*works, *(product(node.shape) for node in summed)))
    each, once = (total.coeff(samples, power) for power in (1, 0))
    columns = _in_columns(inner, samples, each / READ)

    length = _symbol(f"{samples}_part", [*arguments, *nodes])
    part = plan(
        f"{name}_part" if columns else name,
        [_leaf(leaf, samples, length) for leaf in arguments],
        list(zip(made, _renamed(list(made.values()), samples, length), strict=True)),
        samples,
        list(zip(dict(first), _renamed([node for _, node in first], samples, length), strict=True)),
        length if columns else None,
    )
    return Sums(
        part=part,
        own=not columns,
        sliced=tuple(samples in argument.shape for argument in arguments),
        divided=tuple(samples in root.shape for root in made.values()),
        alone=tuple(not own for own, _ in split.values()),
        work=rounded(each),
        entries=entries(part).coeff(length, 1),
        fixed=rounded(once) + most * STEP_OVERHEAD_OPS * len((part.variants or (part,))[0].steps),
        least=MIN_SAMPLES_BATCH_LAST if columns else 1,
        products=most and not columns,
    )


Split = tuple[list[ir.Node], list[ir.Node]]


def _split(
    outputs: Sequence[Named], nodes: Sequence[ir.Node], samples: sympy.Symbol
) -> dict[str, Split] | None:
    """The terms of each output: those that are sums over samples, or all where it comes sample by
    sample, and those that have nothing to do with sums. None where there are others."""
    dependent: set[ir.Node] = set()
    linear: set[ir.Node] = set()
    for node in nodes:
        own = [child for child in references(node) if child in dependent]
        if own and samples in (node.sizes if isinstance(node, ir.Einsum) else node.shape):
            return None
        if is_sum_over(node, samples) or (own and _is_linear(node, own, linear)):
            linear.add(node)
        if own or node in linear:
            dependent.add(node)

    def terms(node: ir.Node) -> list[ir.Node]:
        if isinstance(node, ir.Sum) and node.terms and node not in linear:
            return [term for each in node.terms for term in terms(each)]
        return [node]

    found = {}
    for name, root in outputs:
        every = [root] if samples in root.shape else terms(root)
        if any(term in dependent and term not in linear for term in every):
            return None
        own = [term for term in every if term in linear or samples in root.shape]
        found[name] = own, [term for term in every if term not in own]
    return found


def _is_linear(node: ir.Node, own: Sequence[ir.Node], linear: set[ir.Node]) -> bool:
    """Whether what a node is for all samples is the sum of what it is for parts of them. own: what
    it is made of that depends on sums."""
    if isinstance(node, ir.Sum):
        return linear.issuperset(node.terms)
    return isinstance(node, ir.Einsum) and len(own) == 1 and linear.issuperset(own)


def _added(terms: Sequence[ir.Node]) -> ir.Node:
    return terms[0] if len(terms) == 1 else ir.Sum(tuple(terms), terms[0].shape)


def _in_columns(nodes: Sequence[ir.Node], samples: sympy.Symbol, each: sympy.Expr) -> bool:
    """Whether loops gain from running along the samples: where each number that is read is used
    many times, loops along other axes may be short."""
    leaves = [node for node in nodes if isinstance(node, ir.Leaf) and samples in node.shape]
    read = sum(at_large(product(leaf.shape[1:])) for leaf in leaves)
    suited = all(allows_samples_last(node, samples) for node in nodes)
    return suited and at_large(each) > REUSE * read


def _symbol(name: str, nodes: Sequence[ir.Node]) -> sympy.Symbol:
    """A size of that name, or with underscores behind it while there is one."""
    taken = {each.name for node in nodes for size in node.shape for each in size.free_symbols}
    while name in taken:
        name += "_"
    return symbol(name)


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
