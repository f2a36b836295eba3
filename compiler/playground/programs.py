"""Formulas as functions to run, with their imports: in NumPy, JAX and PyTorch."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterable, Sequence
from copy import deepcopy
from symtable import symtable
from typing import NamedTuple

from derivatrix.runtime.syntax import parse_python


class Framework(NamedTuple):
    """The translation of NumPy's text into a framework.

    header: the first lines; functions: NumPy's or SciPy's name -> its name there; keywords: those
    that functions have there, too; is_strict: whether functions take no numbers in place of arrays,
    `where` only conditions, and slices do not run backwards.
    """

    header: str
    functions: dict[str, str]
    keywords: frozenset[str]
    is_strict: bool


class _NoCounterpart(Exception):
    """A function of the text has no counterpart in a framework."""


def _same(names: str, before: str, after: str) -> dict[str, str]:
    return {f"{before}.{name}": f"{after}.{name}" for name in names.split()}


ENTRYWISE = "abs sign exp expm1 log log1p sqrt sin cos tan sinh cosh tanh arctan arcsin arccos sinc"
ARRAYS = (
    f"{ENTRYWISE} eye outer where sum trace kron tril triu swapaxes prod diag "
    "diagonal einsum ones zeros concatenate stack"
)
MATRICES = "solve inv slogdet det qr svd eigh eigvalsh cholesky matrix_power pinv norm"
DENSITIES = "expit softmax log_softmax logsumexp erf erfc ndtr gammaln digamma polygamma"
JAX_ARRAYS = (
    "broadcast_to split pad expand_dims append arange array asarray cumsum max min heaviside "
    "maximum minimum logaddexp hypot sort select tensordot block real imag shape tri argsort "
    "take_along_axis broadcast_arrays cross"
)
"""Functions that PyTorch lacks, or has with other arguments."""
JAX = Framework(
    "import jax\nimport jax.numpy as jnp\nimport jax.scipy\n\n"
    'jax.config.update("jax_enable_x64", True)',
    {
        **_same(f"{ARRAYS} {JAX_ARRAYS}", "np", "jnp"),
        **_same(f"{MATRICES} eigvals eig matrix_rank", "np.linalg", "jnp.linalg"),
        **_same(
            f"{DENSITIES} xlogy xlog1py entr rel_entr zeta", "scipy.special", "jax.scipy.special"
        ),
        **_same("expm sqrtm", "scipy.linalg", "jax.scipy.linalg"),
        "np.hypot.reduce": "jnp.linalg.norm",
    },
    frozenset({"axis", "keepdims", "full_matrices", "compute_uv", "k", "axis1", "axis2"}),
    False,
)
TORCH = Framework(
    "import torch\n\ntorch.set_default_dtype(torch.float64)",
    {
        **_same(ARRAYS, "np", "torch"),
        **_same(MATRICES, "np.linalg", "torch.linalg"),
        **_same(DENSITIES, "scipy.special", "torch.special"),
        "np.expand_dims": "torch.unsqueeze",
        "np.hypot.reduce": "torch.linalg.vector_norm",
        "scipy.linalg.expm": "torch.linalg.matrix_exp",
    },
    frozenset({"axis", "keepdims", "full_matrices"}),
    True,
)
ARRAY_EXPRESSIONS = (ast.Name, ast.BinOp, ast.Call, ast.Subscript, ast.Attribute)
STRICT: dict[str, tuple[type[ast.expr], ...]] = {
    **dict.fromkeys((f"np.{name}" for name in ENTRYWISE.split()), ARRAY_EXPRESSIONS),
    "np.where": (ast.Compare,),
}
"""Functions -> their first arguments, in frameworks that do not take any."""
DROPPED = ("optimize", "kind")
"""Keywords that change no result."""
METHODS = ("T", "shape", "sum", "reshape", "ravel")
"""Attributes of arrays that all frameworks have."""


def programs(name: str, text: str, inputs: Sequence[str]) -> dict[str, str]:
    """Write the NumPy text of a formula as functions called `name`, by the framework: "numpy", and
    "jax" and "torch" where they have all that the text calls. inputs: the first parameters, as far
    as the text reads them."""
    tree = parse_python(text, mode="eval").body
    names_read = _names_read(text)
    parameters = [x for x in inputs if x in names_read] + [x for x in names_read if x not in inputs]
    head = f"def {name}({', '.join(parameters)}):"
    parts = _lines(tree)
    libraries = [f"import {library}" for library in ("numpy as np", "scipy")]
    header = "\n".join(libraries if "scipy." in text else libraries[:1])
    result = {"numpy": _program(header, head, [(x, _source(text, part)) for x, part in parts])}
    for framework, translation in {"jax": JAX, "torch": TORCH}.items():
        translator = _Translator(translation)
        try:
            lines = [(x, ast.unparse(translator.visit(deepcopy(part)))) for x, part in parts]
        except _NoCounterpart:
            continue
        result[framework] = _program(translation.header, head, lines)
    return result


def _lines(tree: ast.expr) -> list[tuple[str, ast.expr]]:
    """Split (name := value, ..., result)[-1] into lines "name = " and "return ", with values."""
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Tuple):
        return [("return ", tree)]
    *definitions, result = tree.value.elts
    if not all(isinstance(definition, ast.NamedExpr) for definition in definitions):
        return [("return ", tree)]
    assignments = [part for part in definitions if isinstance(part, ast.NamedExpr)]
    return [*((f"{part.target.id} = ", part.value) for part in assignments), ("return ", result)]


def _source(text: str, tree: ast.expr) -> str:
    return ast.get_source_segment(text, tree) or ast.unparse(tree)


def _program(header: str, head: str, lines: Iterable[tuple[str, str]]) -> str:
    return "\n".join([header, "", "", head, *(f"    {x}{value}" for x, value in lines)])


def _names_read(text: str) -> list[str]:
    """List the names that an expression reads and does not bind itself."""
    top = symtable(text, "<formula>", "eval")
    bound = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_assigned()}
    names, tables = list[str](), [top]
    for table in tables:
        tables += table.get_children()
        names += [symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()]
    return list(dict.fromkeys(x for x in names if x not in {*bound, "np", "scipy", *dir(builtins)}))


class _Translator(ast.NodeTransformer):
    """Replaces the functions of NumPy and SciPy in an expression."""

    def __init__(self, framework: Framework) -> None:
        self.framework = framework

    def visit_Call(self, call: ast.Call) -> ast.expr:
        path = ast.unparse(call.func)
        arguments = [self.visit(argument) for argument in call.args]
        keywords = [keyword for keyword in call.keywords if keyword.arg not in DROPPED]
        if any(keyword.arg not in self.framework.keywords for keyword in keywords):
            raise _NoCounterpart
        is_strict = self.framework.is_strict and path in STRICT
        if is_strict and not isinstance(call.args[0], STRICT[path]):
            raise _NoCounterpart
        if path == "np.hypot.reduce" and not keywords:
            keywords = [ast.keyword("axis", ast.Constant(0))]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in keywords]
        return ast.Call(self.visit(call.func), arguments, keywords)

    def visit_Attribute(self, attribute: ast.Attribute) -> ast.expr:
        path = ast.unparse(attribute)
        if path in self.framework.functions:
            return parse_python(self.framework.functions[path], mode="eval").body
        if path == "np.pi":
            return ast.Constant(3.141592653589793)
        if attribute.attr not in METHODS or path.startswith(("np.", "scipy.")):
            raise _NoCounterpart
        return ast.Attribute(self.visit(attribute.value), attribute.attr, ast.Load())

    def visit_Slice(self, part: ast.Slice) -> ast.expr:
        if isinstance(part.step, ast.UnaryOp) and self.framework.is_strict:
            raise _NoCounterpart
        return self.generic_visit(part)  # type: ignore[return-value]
