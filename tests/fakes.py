"""Hand-written modules that look like generated ones, in plain NumPy, to test the verifier with.

Each function here returns a fresh module, so that a test can spoil it. They are correct.
"""

import inspect
import math
from collections import namedtuple
from types import ModuleType

import numpy as np


def fake(name, inputs, output, declaration, functions, formulas):
    """A module of `functions`, which take arrays and return arrays (lists: one for each `wrt`
    input); it adds float32, `out=` and the named tuples that generated modules return."""
    module = ModuleType(name)
    module.INPUTS = tuple(inputs)
    module.OUTPUT = output
    module.DECLARATION = declaration
    module.FUNCTIONS = tuple(functions)
    module.FORMULAS = {
        kind: {key: {"numpy": text} for key, text in texts.items()}
        for kind, texts in formulas.items()
    }
    module.DIGEST = f"digest of {name}"
    names = [entry["name"] for entry in inputs if entry["wrt"]]
    gradients = namedtuple("Gradients", names)
    for kind, function in functions.items():
        over_axes = _over_batch_axes(kind, function, inputs, output)
        setattr(module, kind, _public(kind, over_axes, gradients))
        setattr(module, f"{kind}_kernel", _kernel(function))
    return module


def _kernel(function):
    """Fills the arrays given last with what the function returns."""
    parameters = inspect.signature(function).parameters.values()
    count = sum(parameter.default is parameter.empty for parameter in parameters)

    def kernel(*arguments):
        result = _flat(function(*map(np.asarray, arguments[:count])))
        for target, part in zip(arguments[count:], result, strict=True):
            target[...] = part

    return kernel


def _flat(result):
    if not isinstance(result, list | tuple):
        return [result]
    return [part for element in result for part in _flat(element)]


def entry(name, *shape, structure="general", batched=False, wrt=True, domain=""):
    return {
        "name": name,
        "shape": shape,
        "structure": structure,
        "batched": batched,
        "wrt": wrt,
        "domain": domain,
    }


def _over_batch_axes(kind, function, inputs, output):
    """A function of any number of batch axes, by one of a single batch axis."""
    if not output["batched"]:
        return function
    wrt = [part for part in inputs if part["wrt"]]
    entries = [*inputs, *{"vjp": [output], "jvp": wrt, "hvp": wrt}.get(kind, [])]

    def over_axes(*arrays):
        cores = [a.shape[a.ndim - len(e["shape"]) :] for e, a in zip(entries, arrays, strict=True)]
        triples = list(zip(entries, arrays, cores, strict=True))
        axes = np.broadcast_shapes(
            *(a.shape[: a.ndim - len(core)] for e, a, core in triples if e["batched"])
        )
        count = math.prod(axes)
        merged = [
            np.broadcast_to(a, axes + core).reshape(count, *core) if e["batched"] else a
            for e, a, core in triples
        ]

        def split(result):
            if isinstance(result, list | tuple):
                return [split(part) for part in result]
            return result.reshape(axes + result.shape[1:])

        result = function(*merged)
        if kind != "vjp" or len(wrt) == 1:
            return split(result)
        pairs = zip(wrt, result, strict=True)
        return [split(part) if e["batched"] else part for e, part in pairs]

    return over_axes


def _public(kind, function, gradients):
    def public(*arguments, out=None):
        arguments = [np.asarray(argument) for argument in arguments]
        narrow = all(argument.dtype == np.float32 for argument in arguments)
        dtype = np.float32 if narrow else np.float64
        result = function(*(np.array(argument, dtype=np.float64) for argument in arguments))
        return _finish(result, out, dtype, gradients, kind)

    public.__name__ = kind
    return public


def _finish(result, out, dtype, gradients, kind):
    if isinstance(result, (list, tuple)):
        outs = out if out is not None else [None] * len(result)
        parts = [
            _finish(part, target, dtype, gradients, "")
            for part, target in zip(result, outs, strict=True)
        ]
        return tuple(parts) if kind == "value_and_gradient" else gradients(*parts)
    if out is None:
        return np.array(result, dtype=dtype)
    out[...] = result
    return out


def square():
    return fake(
        "square",
        [entry("X", "n", "n")],
        {"shape": ("n", "n"), "batched": False},
        "X @ X",
        {
            "value": lambda X: X @ X,
            "vjp": lambda X, G: G @ X.T + X.T @ G,
            "jvp": lambda X, V: V @ X + X @ V,
            "jacobian": _square_jacobian,
        },
        {
            "value": {"": "X @ X"},
            "vjp": {"X": "cotangent @ X.T + X.T @ cotangent"},
            "jvp": {"": "tangent @ X + X @ tangent"},
            "jacobian": {
                "X": "np.einsum('ik,lj->ijkl', np.eye(n), X)"
                " + np.einsum('ik,jl->ijkl', X, np.eye(n))"
            },
        },
    )


def _square_jacobian(X):
    one = np.eye(len(X))
    return np.einsum("ik,lj->ijkl", one, X) + np.einsum("ik,jl->ijkl", X, one)


def energy():
    """tr((XX)ᵀ(XX)), with every kind of derivative."""
    return fake(
        "energy",
        [entry("X", "n", "n")],
        {"shape": (), "batched": False},
        "np.trace((X @ X).T @ (X @ X))",
        {
            "value": lambda X: np.sum((X @ X) ** 2),
            "vjp": lambda X, G: G * _energy_gradient(X),
            "jvp": lambda X, V: np.sum(_energy_gradient(X) * V),
            "jacobian": _energy_gradient,
            "gradient": _energy_gradient,
            "value_and_gradient": lambda X: (np.sum((X @ X) ** 2), _energy_gradient(X)),
            "hessian": _energy_hessian,
            "hvp": _energy_hvp,
        },
        {
            "value": {"": "np.sum((X @ X) ** 2)"},
            "vjp": {"X": "cotangent * 2 * (X @ X @ X.T + X.T @ X @ X)"},
            "jvp": {"": "np.sum(2 * (X @ X @ X.T + X.T @ X @ X) * tangent)"},
            "jacobian": {"X": "2 * (X @ X @ X.T + X.T @ X @ X)"},
            "gradient": {"X": "2 * (X @ X @ X.T + X.T @ X @ X)"},
            "hessian": {"X, X": ENERGY_HESSIAN},
            "hvp": {"X": f"np.einsum('ijkl,kl->ij', {ENERGY_HESSIAN}, tangent)"},
        },
    )


def _energy_gradient(X):
    return 2 * (X @ X @ X.T + X.T @ X @ X)


def _energy_hvp(X, V):
    Y, W = X @ X, V @ X + X @ V
    return 2 * (W @ X.T + Y @ V.T + V.T @ Y + X.T @ W)


def _energy_hessian(X):
    units = np.eye(X.size).reshape(X.size, *X.shape)
    columns = [_energy_hvp(X, unit) for unit in units]
    return np.stack(columns, axis=-1).reshape(*X.shape, *X.shape)


ENERGY_HESSIAN = (
    "2 * (np.einsum('ik,jl->ijkl', np.eye(n), X @ X.T) + np.einsum('ik,jl->ijkl', X, X)"
    " + np.einsum('il,jk->ijkl', X @ X, np.eye(n)) + np.einsum('il,kj->ijkl', np.eye(n), X @ X)"
    " + np.einsum('ki,lj->ijkl', X, X) + np.einsum('ki,jl->ijkl', X.T @ X, np.eye(n)))"
)


def nll():
    """log det S + (x - m)ᵀ S⁻¹ (x - m), by the mean m and the covariance S, which is spd."""
    return fake(
        "nll",
        [entry("S", "d", "d", structure="spd"), entry("x", "d", wrt=False), entry("m", "d")],
        {"shape": (), "batched": False},
        "np.linalg.slogdet(S)[1] + (x - m) @ np.linalg.inv(S) @ (x - m)",
        {
            "value": _nll,
            "vjp": lambda S, x, m, G: [G * part for part in _nll_gradient(S, x, m)],
            "jvp": _nll_jvp,
            "jacobian": lambda S, x, m: _nll_gradient(S, x, m),
            "gradient": lambda S, x, m: _nll_gradient(S, x, m),
            "value_and_gradient": lambda S, x, m: (_nll(S, x, m), _nll_gradient(S, x, m)),
            "hessian": _nll_hessian,
            "hvp": _nll_hvp,
        },
        {
            "value": {"": "np.linalg.slogdet(S)[1] + (x - m) @ np.linalg.solve(S, x - m)"},
            "vjp": {
                "S": f"cotangent * {NLL_BY_S}",
                "m": "cotangent * -2 * np.linalg.solve(S, x - m)",
            },
            "jvp": {
                "": f"np.sum({NLL_BY_S} * tangent_S) - 2 * np.linalg.solve(S, x - m) @ tangent_m"
            },
            "jacobian": {"S": NLL_BY_S, "m": "-2 * np.linalg.solve(S, x - m)"},
            "gradient": {"S": NLL_BY_S, "m": "-2 * np.linalg.solve(S, x - m)"},
            "hessian": {
                "S, S": NLL_BY_S_S,
                "S, m": NLL_BY_S_M,
                "m, S": f"np.moveaxis({NLL_BY_S_M}, 2, 0)",
                "m, m": "2 * np.linalg.inv(S)",
            },
            "hvp": {
                "S": f"np.einsum('ijkl,kl->ij', {NLL_BY_S_S}, tangent_S)"
                f" + np.einsum('ijk,k->ij', {NLL_BY_S_M}, tangent_m)",
                "m": f"np.einsum('ijk,ij->k', {NLL_BY_S_M}, tangent_S)"
                " + 2 * np.linalg.inv(S) @ tangent_m",
            },
        },
    )


NLL_BY_S = "(np.linalg.inv(S) - np.outer(np.linalg.solve(S, x - m), np.linalg.solve(S, x - m)))"
NLL_BY_S_S = (
    "(lambda P, u: (np.einsum('ik,jl->ijkl', P, np.outer(u, u) - P / 2)"
    " + np.einsum('il,jk->ijkl', P, np.outer(u, u) - P / 2)"
    " + np.einsum('ik,jl->ijkl', np.outer(u, u), P)"
    " + np.einsum('il,jk->ijkl', np.outer(u, u), P)) / 2"
    " - (np.einsum('ik,jl->ijkl', P, P) + np.einsum('il,jk->ijkl', P, P)) / 4)"
    "(np.linalg.inv(S), np.linalg.solve(S, x - m))"
)
NLL_BY_S_M = (
    "(lambda P, u: np.einsum('ik,j->ijk', P, u) + np.einsum('jk,i->ijk', P, u))"
    "(np.linalg.inv(S), np.linalg.solve(S, x - m))"
)


def _nll(S, x, m):
    return np.linalg.slogdet(S)[1] + (x - m) @ np.linalg.solve(S, x - m)


def _nll_gradient(S, x, m):
    u = np.linalg.solve(S, x - m)
    return [np.linalg.inv(S) - np.outer(u, u), -2 * u]


def _nll_jvp(S, x, m, dS, dm):
    by_S, by_m = _nll_gradient(S, x, m)
    return np.sum(by_S * dS) + by_m @ dm


def _nll_hvp(S, x, m, dS, dm):
    P, u, dS = np.linalg.inv(S), np.linalg.solve(S, x - m), (dS + dS.T) / 2
    du = -P @ (dS @ u + dm)
    return [-P @ dS @ P - np.outer(du, u) - np.outer(u, du), -2 * du]


def _nll_hessian(S, x, m):
    d = len(m)
    rows = [[np.zeros((d, d, d, d)), np.zeros((d, d, d))], [np.zeros((d, d, d)), np.zeros((d, d))]]
    for j in range(d):
        unit = np.eye(d)[j]
        rows[0][1][..., j], rows[1][1][..., j] = _nll_hvp(S, x, m, np.zeros((d, d)), unit)
        for i in range(d):
            unit = np.zeros((d, d))
            unit[i, j] = 1
            rows[0][0][..., i, j], rows[1][0][..., i, j] = _nll_hvp(S, x, m, unit, np.zeros(d))
    return rows


def classifier():
    """softmax(W x + b) for a batch of x: W and b are shared."""
    return fake(
        "classifier",
        [entry("x", "d", batched=True), entry("W", "c", "d"), entry("b", "c")],
        {"shape": ("c",), "batched": True},
        "scipy.special.softmax(x @ W.T + b, axis=-1)",
        {
            "value": _classes,
            "vjp": _classes_vjp,
            "jvp": _classes_jvp,
            "jacobian": _classes_jacobian,
        },
        {
            "value": {"": "scipy.special.softmax(x @ W.T + b, axis=-1)"},
            "vjp": {
                "x": f"{CLASSES_PULLED} @ W",
                "W": f"{CLASSES_PULLED}.T @ x",
                "b": f"{CLASSES_PULLED}.sum(axis=0)",
            },
            "jvp": {
                "": f"np.einsum('bij,bj->bi', {CLASSES_BY_SCORE},"
                " tangent_x @ W.T + x @ tangent_W.T + tangent_b)"
            },
            "jacobian": {
                "x": f"np.einsum('bij,jk->bik', {CLASSES_BY_SCORE}, W)",
                "W": f"np.einsum('bij,bk->bijk', {CLASSES_BY_SCORE}, x)",
                "b": CLASSES_BY_SCORE,
            },
        },
    )


CLASSES_BY_SCORE = (
    "(lambda y: np.einsum('bi,ij->bij', y, np.eye(c)) - np.einsum('bi,bj->bij', y, y))"
    "(scipy.special.softmax(x @ W.T + b, axis=-1))"
)
CLASSES_PULLED = f"np.einsum('bij,bi->bj', {CLASSES_BY_SCORE}, cotangent)"


def _classes(x, W, b):
    scores = x @ W.T + b
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _classes_vjp(x, W, b, G):
    y = _classes(x, W, b)
    pulled = y * (G - np.sum(G * y, axis=-1, keepdims=True))
    return [pulled @ W, pulled.T @ x, pulled.sum(axis=0)]


def _classes_jvp(x, W, b, dx, dW, db):
    y = _classes(x, W, b)
    pushed = dx @ W.T + x @ dW.T + db
    return y * (pushed - np.sum(y * pushed, axis=-1, keepdims=True))


def _classes_jacobian(x, W, b):
    y = _classes(x, W, b)
    by_score = np.einsum("bi,ij->bij", y, np.eye(len(b))) - np.einsum("bi,bj->bij", y, y)
    by_weight = np.einsum("bij,bk->bijk", by_score, x)
    return [np.einsum("bij,jk->bik", by_score, W), by_weight, by_score]


def relu():
    """Kinks at zero."""
    return fake(
        "relu",
        [entry("x", "n")],
        {"shape": ("n",), "batched": False},
        "np.maximum(x, 0)",
        {
            "value": lambda x: np.maximum(x, 0),
            "vjp": lambda x, G: G * (x > 0),
            "jvp": lambda x, V: V * (x > 0),
            "jacobian": lambda x: np.diag(1.0 * (x > 0)),
        },
        {
            "value": {"": "np.maximum(x, 0)"},
            "vjp": {"x": "cotangent * (x > 0)"},
            "jvp": {"": "tangent * (x > 0)"},
            "jacobian": {"x": "np.diag((x > 0).astype(np.float64))"},
        },
    )


def entropy():
    """s xᵢ log xᵢ for each of a batch, summed: a scalar per sample, defined for positive x,
    which the declaration does not say."""
    return fake(
        "entropy",
        [entry("x", "k", batched=True), entry("s")],
        {"shape": (), "batched": True},
        "s * np.sum(x * np.log(x), axis=-1)",
        {
            "value": lambda x, s: s * np.sum(x * np.log(x), axis=-1),
            "vjp": _entropy_vjp,
            "jvp": _entropy_jvp,
            "jacobian": _entropy_gradient,
            "gradient": _entropy_gradient,
            "value_and_gradient": lambda x, s: (
                s * np.sum(x * np.log(x), axis=-1),
                _entropy_gradient(x, s),
            ),
            "hessian": _entropy_hessian,
            "hvp": _entropy_hvp,
        },
        {
            "value": {"": "s * np.sum(x * np.log(x), axis=-1)"},
            "vjp": {
                "x": "cotangent[:, None] * s * (np.log(x) + 1)",
                "s": "np.sum(cotangent * np.sum(x * np.log(x), axis=-1))",
            },
            "jvp": {
                "": "s * np.sum((np.log(x) + 1) * tangent_x, axis=-1)"
                " + np.sum(x * np.log(x), axis=-1) * tangent_s"
            },
            "jacobian": {"x": "s * (np.log(x) + 1)", "s": "np.sum(x * np.log(x), axis=-1)"},
            "gradient": {"x": "s * (np.log(x) + 1)", "s": "np.sum(x * np.log(x), axis=-1)"},
            "hessian": {
                "x, x": "s * np.einsum('bi,ij->bij', 1 / x, np.eye(k))",
                "x, s": "np.log(x) + 1",
                "s, x": "np.log(x) + 1",
                "s, s": "np.zeros(batch)",
            },
            "hvp": {
                "x": "s * tangent_x / x + tangent_s * (np.log(x) + 1)",
                "s": "np.sum((np.log(x) + 1) * tangent_x, axis=-1)",
            },
        },
    )


def _entropy_gradient(x, s):
    return [s * (np.log(x) + 1), np.sum(x * np.log(x), axis=-1)]


def _entropy_vjp(x, s, G):
    by_x, by_s = _entropy_gradient(x, s)
    return [G[:, None] * by_x, np.sum(G * by_s)]


def _entropy_jvp(x, s, dx, ds):
    by_x, by_s = _entropy_gradient(x, s)
    return np.sum(by_x * dx, axis=-1) + by_s * ds


def _entropy_hvp(x, s, dx, ds):
    slope = np.log(x) + 1
    return [s * dx / x + ds * slope, np.sum(slope * dx, axis=-1)]


def _entropy_hessian(x, s):
    slope = np.log(x) + 1
    by_x = s * np.einsum("bi,ij->bij", 1 / x, np.eye(x.shape[1]))
    return [[by_x, slope], [slope, np.zeros(len(x))]]


def triangle():
    """v ↦ L v by the lower triangular L alone."""
    return fake(
        "triangle",
        [entry("L", "n", "n", structure="lower"), entry("v", "n", wrt=False)],
        {"shape": ("n",), "batched": False},
        "L @ v",
        {
            "value": lambda L, v: L @ v,
            "vjp": lambda L, v, G: np.tril(np.outer(G, v)),
            "jvp": lambda L, v, V: np.tril(V) @ v,
            "jacobian": lambda L, v: (
                np.einsum("ij,k->ijk", np.eye(len(v)), v) * np.tril(np.ones(L.shape))
            ),
        },
        {
            "value": {"": "L @ v"},
            "vjp": {"L": "np.tril(np.outer(cotangent, v))"},
            "jvp": {"": "np.tril(tangent) @ v"},
            "jacobian": {"L": "np.einsum('ij,k->ijk', np.eye(n), v) * np.tril(np.ones((n, n)))"},
        },
    )


def wide():
    """W x with 30 * 40 literal sizes: too many entries to try every one."""
    return fake(
        "wide",
        [entry("W", "30", "40"), entry("x", "40")],
        {"shape": ("30",), "batched": False},
        "np.tanh(W @ x)",
        {
            "value": lambda W, x: np.tanh(W @ x),
            "vjp": _wide_vjp,
            "jvp": lambda W, x, dW, dx: (1 - np.tanh(W @ x) ** 2) * (dW @ x + W @ dx),
            "jacobian": _wide_jacobian,
        },
        {
            "value": {"": "np.tanh(W @ x)"},
            "vjp": {
                "W": "np.outer(cotangent * (1 - np.tanh(W @ x) ** 2), x)",
                "x": "W.T @ (cotangent * (1 - np.tanh(W @ x) ** 2))",
            },
            "jvp": {"": "(1 - np.tanh(W @ x) ** 2) * (tangent_W @ x + W @ tangent_x)"},
            "jacobian": {
                "W": "np.einsum('ij,i,k->ijk', np.eye(30), 1 - np.tanh(W @ x) ** 2, x)",
                "x": "(1 - np.tanh(W @ x) ** 2)[:, None] * W",
            },
        },
    )


def _wide_vjp(W, x, G):
    pulled = G * (1 - np.tanh(W @ x) ** 2)
    return [np.outer(pulled, x), W.T @ pulled]


def _wide_jacobian(W, x):
    slope = 1 - np.tanh(W @ x) ** 2
    return [np.einsum("ij,i,k->ijk", np.eye(len(slope)), slope, x), slope[:, None] * W]


FAKES = {
    make.__name__: make for make in (square, energy, nll, classifier, relu, entropy, triangle, wide)
}
