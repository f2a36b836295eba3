"""Kernels whose results are sums over samples, as gradients by parameters are: parts of the samples
are added up by several threads, a part at a time whose temporary arrays stay in the cache.

There is a kernel for a part of the samples then, whose sums are added up: where a result is a sum
with other terms, in the result itself. Another one does what is left to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import sympy

from derivatrix.compiler.ir import nodes as ir
from derivatrix.compiler.ir.dimensions import Shape, symbol
from derivatrix.compiler.ir.graph import rebuilt, references
from derivatrix.compiler.ir.structure import facts
from derivatrix.compiler.ir.substitute import substitute
from derivatrix.compiler.plan.matrix_products import product_groups
from derivatrix.compiler.plan.memory import entries
from derivatrix.compiler.plan.nominal_sizes import at_large, product
from derivatrix.compiler.plan.sample_axis import (
    allows_samples_last,
    is_divisible,
    is_sum_over,
    rounded,
    uses_their_number,
    work,
)
from derivatrix.compiler.plan.steps import Plan, Sums
from derivatrix.compiler.plan.visit import walk

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
    summed = [node for node in nodes if is_sum_over(node, samples)]
    if not summed or _need_sums(nodes, summed, samples):
        return None
    split = _split(outputs, summed, samples)
    added = {term for each in split.values() for term in each[0]}
    others = [node for node in summed if node not in added]
    leaves = [
        ir.Leaf(f"sum_{number}", node.shape or (sympy.S.One,), _structure(node), "placeholder")
        for number, node in enumerate(others)
    ]
    parts = {name: root for name, root in outputs if samples in root.shape}
    parts |= {name: _added(own) for name, (own, _) in split.items() if own}
    parts |= {leaf.name: _array(node) for leaf, node in zip(leaves, others, strict=True)}
    left = {name: _added(more) for name, (own, more) in split.items() if more or not own}
    inner = ir.topological(list(parts.values()))
    works = [work(node) for node in inner]
    products = [each for node, each in zip(inner, works, strict=True) if product_groups(node)]
    most = bool(2 * sum(map(at_large, products)) > sum(map(at_large, works)))
    made = [node for node in inner if samples in node.shape and not isinstance(node, ir.Leaf)]
    if most and not made:  # there is nothing that could stay in the cache
        return None
    total = READ * sympy.expand(sympy.Add(*works, *(product(node.shape) for node in summed)))
    each, once = (total.coeff(samples, power) for power in (1, 0))
    columns = not most and _in_columns(inner, samples, each / READ)
    sliced = tuple(samples in argument.shape for argument in arguments)
    whole = (sliced.index(True),) if any(uses_their_number(node, samples) for node in inner) else ()

    length = _symbol(f"{samples}_part", [*arguments, *nodes])
    part = plan(
        f"{name}_part",
        [*(_leaf(leaf, samples, length) for leaf in arguments), *(arguments[n] for n in whole)],
        list(zip(parts, _renamed(list(parts.values()), samples, length), strict=True)),
        samples=length if columns else None,
    )
    rest = None
    if left:
        read = {node: _number(leaf, node.ndim) for node, leaf in zip(others, leaves, strict=True)}
        results = list(zip(left, substitute(list(left.values()), read), strict=True))
        onto = frozenset(name for name, (own, _) in split.items() if own)
        rest = plan(f"{name}_rest", [*arguments, *leaves], results, onto=onto)
    return Sums(
        part=part,
        rest=rest,
        joined=not columns and not any(map(_fails, (part, rest))),
        sliced=sliced,
        whole=whole,
        divided=tuple(samples in root.shape for root in roots),
        work=rounded(each),
        entries=entries(part).coeff(length, 1),
        fixed=rounded(once) + most * STEP * len((part.variants or (part,))[0].steps),
        least=LEAST_COLUMNS if columns else 1,
        products=most,
    )


def _fails(kernel: Plan | None) -> bool:
    """Whether a kernel may raise for what it is given."""
    plans = (kernel, *kernel.variants) if kernel else ()
    return any(getattr(each, "failure", "") for each in walk([plan.steps for plan in plans]))


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


def _symbol(name: str, nodes: Sequence[ir.Node]) -> sympy.Symbol:
    """A size of that name, or with underscores behind it while there is one."""
    taken = {each.name for node in nodes for size in node.shape for each in size.free_symbols}
    while name in taken:
        name += "_"
    return symbol(name)


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
