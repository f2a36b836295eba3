"""Functions that the tests drive through every stage."""

import re

import sympy

import derivatrix
import derivatrix.compiler.frontends.arrays as dx
from derivatrix.compiler.frontends.function import Function, function
from tests import ROOT

n, m, c = dx.dims("n m c")
X, C = dx.matrix("X", n, n), dx.matrix("C", n, n)
A, R, W = dx.matrix("A", m, n), dx.matrix("R", n, m), dx.matrix("W", c, m)
S, B = dx.matrix("S", n, n, "spd"), dx.matrix("B", m, m, "spd")
K = dx.matrix("K", n, n, "symmetric")
L, U = dx.matrix("L", n, n, "lower"), dx.matrix("U", n, n, "upper")
D, Q = dx.matrix("D", n, n, "diagonal"), dx.matrix("Q", n, n, "orthogonal")
V = dx.matrix("V", n, n, "invertible")
x, y, b = dx.vector("x", m), dx.vector("y", n), dx.vector("b", c)
p = dx.vector("p", n, "positive")
s = dx.scalar("s")
t = dx.scalar("t", "positive")
T = dx.tensor("T", n, m, c)
F = dx.matrix("F", 3, 3, "invertible")
Ms = sympy.MatrixSymbol("M", n, n)
v = sympy.MatrixSymbol("v", n, 1)
singular = dx.svd(R)
vectors = dx.eigh(K).eigenvectors
pivotless = derivatrix.lu(X + 4 * dx.eye(n))

CASES: list[Function] = [
    function("square", [X], X @ X),
    function("energy", [X], dx.trace((X @ X).T @ (X @ X))),
    function("cube", [X], dx.matrix_power(X, 3)),
    function("seventh", [X], dx.trace(dx.matrix_power(X, 7)) / 100),
    function("sandwich", [A, X, R], A @ X @ R),
    function("bilinear", [x, R, y], y @ R @ x),
    function("quadratic", [y, S], y @ S @ y, wrt=[y]),
    function("outer", [x, y], dx.outer(x, y)),
    function("hadamard", [X, C], X * C + X / (2 + C**2)),
    function("broadcast", [R, x, y], (R - x) * y[:, None] + dx.mean(R, axis=0)),
    function("powers", [p], p**2.5 + 1 / p + dx.sqrt(p) + p**p),
    function("elementwise", [y], dx.exp(-(y**2) / 2) * dx.erf(y) + dx.sin(y) * dx.arctan(y)),
    function("activations", [y], dx.sigmoid(y) + dx.softplus(y) * dx.tanh(y) + dx.normcdf(y)),
    function("logarithms", [p], dx.log(p) * dx.log1p(p) + dx.log2(p)),
    function("kinks", [y], dx.sum(dx.relu(y) + abs(y) * dx.maximum(y, 0.5 * y[::-1]))),
    function("where", [X, C], dx.where(X > C, X * C, dx.minimum(X, 0.1))),
    function("inverse", [V], dx.inv(V)),
    function(
        "gain",
        [S, y, C],
        C @ y / dx.cholesky((y @ S @ y)[None, None]) + dx.inv((y @ C @ y)[None, None])[0],
    ),
    function("solve", [V, y], dx.solve(V, y)),
    function("nll", [S, C], dx.logdet(S) + dx.trace(dx.inv(S) @ C), wrt=[S]),
    function("norms", [R, x], dx.norm(R) * dx.norm(x) + dx.norm(x, 1)),
    function("slices", [R], (R[1:] - R[:-1]) @ R[0]),
    function("entries", [X], X[0, 1] ** 2 * X[-1, 0] + dx.sum(X[::-1, 1:])),
    function("concatenated", [x, y], dx.tanh(dx.concatenate([x, y, 2 * x]))),
    function("diagonals", [X, y], dx.diag(y) @ X @ dx.diag(dx.diagonal(X))),
    function("triangles", [X], dx.tril(X) @ dx.triu(X, 1) + dx.cumsum(X, axis=0)),
    function("einsum", [T, x, b], dx.einsum("ijk,j,k->i", T, x, b)),
    function("tensor", [T, W], dx.einsum("ijk,kj->ikj", dx.tanh(T), W)),
    function("softmax", [W, x, b], dx.softmax(W @ x + b)),
    function("attention", [R, W], dx.softmax(R @ W.T / sympy.sqrt(m)) @ W),
    function("logsumexp", [X], dx.logsumexp(X, axis=0) @ dx.log(dx.sum(dx.exp(X), axis=1))),
    function("logistic", [R, x, y], dx.sum(dx.log(dx.exp(-y * (R @ x)) + 1)), wrt=[x]),
    function("cholesky", [S], dx.cholesky(S)),
    function("skew", [dx.vector("h", 3), F], derivatrix.skew(dx.vector("h", 3)) @ F),
    function("symmetric", [K, y], dx.tanh(K) @ y),
    function("diagonal", [D, X], dx.trace(D @ X @ D @ X)),
    function("orthogonal", [Q, X], dx.trace(Q.T @ X @ Q @ X)),
    function("constants", [y], dx.constant([[1.0, 2.0, 0.5]]).T[:2] @ y[:1] + y[0]),
    function("affine", [s, y], s**2 * y + s / 3),
    function("literal", [F], F @ F.T + F),
    function("sympy", [Ms, v], v.T * Ms.T * Ms * v),
    function("classifier", [x, W, b], dx.softmax(W @ x + b), batch=[x]),
    function("batch_shared", [S, y], y @ dx.inv(S) @ y + dx.logdet(S), batch=[y]),
    function(
        "blocks",
        [A, R, dx.vector("z", n + m)],
        dx.block([[A, dx.eye(m)], [dx.eye(n), R]]) @ dx.vector("z", n + m),
    ),
    function("order", [A, X, R], dx.trace(A @ X @ R), wrt=[X, A]),
    function(
        "strides",
        [dx.vector("z", 6)],
        dx.concatenate(
            [dx.vector("z", 6)[4::-3] ** 2, dx.vector("z", 6)[::-1][:2], dx.vector("z", 6)[::2]]
        ),
    ),
    function("batch_linear", [x, W], W @ x, batch=[x]),
]

STAGE_TEXTS = dict(
    re.findall(
        r"^\*\*(\w+)\*\*:.*?```\w+\n(.*?)\n```",
        (ROOT / "docs" / "developers" / "architecture.md").read_text("utf-8"),
        re.DOTALL | re.MULTILINE,
    )
)
"""Stage -> its text for `square`, the first case, on the page about the architecture."""

EVALUATED: list[Function] = [
    function("solve_matrix", [V, R], dx.sum(dx.solve(V.T, R) ** 2)),
    function("upper", [U, L], dx.trace(dx.inv(U) @ L)),
    function("logdets", [V, p], dx.log(abs(dx.det(V))) + dx.logdet(dx.diag(p) + dx.eye(n))),
    function("regression", [R, x, y, t], ((R @ x - y) ** 2).sum() / n + t * dx.norm(x) ** 3),
    function("cross_entropy", [W, x], -dx.log(dx.softmax(W @ x))[0]),
    function("sylvester", [S, B, R], dx.solve_sylvester(S, B, R)),
    function("orthonormal", [A, x], x @ dx.qr(A).Q),
    function("pivotless", [X], pivotless.L + 2 * pivotless.U),
    function("polar", [R], derivatrix.polar_factor(R)),
    function("projector", [K], vectors[:, :1] @ vectors[:, :1].T),
    function("pseudoinverse", [A], derivatrix.pinv(A)),
    function("sylvester_energy", [S, B, R], dx.sum(dx.solve_sylvester(S, B, R) ** 2), wrt=[S, R]),
    function(
        "lyapunov",
        [V, K],
        derivatrix.solve_continuous_lyapunov(V, K) - derivatrix.solve_discrete_lyapunov(V / 9, K),
    ),
    function(
        "riccati",
        [V, R, S, B],
        derivatrix.solve_continuous_are(V / 9 - dx.eye(n), R / 2, S, B + dx.eye(m))
        @ derivatrix.solve_discrete_are(V / 9, R, S, B),
        wrt=[V],
    ),
    function("exponential_trace", [K], dx.log(dx.trace(derivatrix.expm(K / 4)))),
    function("triangular_factors", [A, y], dx.qr(A).R @ y),
    function("real_vectors", [S, K, y], y @ derivatrix.eig(S @ K).eigenvectors, wrt=[K]),
    function("spectra", [S, K], dx.eigvalsh(K) + derivatrix.eigvals(S @ K), wrt=[K]),
    function("singular_vectors", [R, x, y], y @ singular.U + singular.Vh @ x, wrt=[R]),
    function("singular_values", [A], derivatrix.svdvals(A)),
    function("nuclear", [A], derivatrix.nuclear_norm(A) ** 2),
    function("principal", [S], derivatrix.logm(S) - derivatrix.sqrtm(S)),
    function(
        "rotation",
        [X],
        derivatrix.cosm(X / n) @ derivatrix.sinm(X / n) + derivatrix.tanhm(X / n).T,
    ),
    function("lyapunov_energy", [V, C], dx.sum(dx.sin(derivatrix.solve_continuous_lyapunov(V, C)))),
    function("stein_energy", [V, X], dx.sum(derivatrix.solve_discrete_lyapunov(V / 9, X) ** 2)),
    function("covariance", [V, S, y], y @ derivatrix.solve_discrete_lyapunov(V / 9, S) @ y),
    function(
        "regulator",
        [V, R, S, B],
        dx.trace(derivatrix.solve_continuous_are(V / 9 - dx.eye(n), R / 2, S, B + dx.eye(m))),
    ),
    function(
        "sampled",
        [V, R, S, B],
        dx.trace(derivatrix.solve_discrete_are(V / 9, R, S, B)),
    ),
    function(
        "kalman", [V, R, X, B, y], y @ derivatrix.solve_discrete_are(V.T / 9, R, X @ X.T, B) @ y
    ),
    function(
        "unsymmetric",
        [V, K, X],
        dx.sum(derivatrix.solve_continuous_are(V / 9 - dx.eye(n), K / 3, X, dx.eye(n) + X / 9)),
    ),
    function(
        "commuting",
        [K, X],
        dx.sum(dx.solve_sylvester(K @ K + dx.eye(n), K @ K + dx.eye(n), X) ** 2),
    ),
    function("trace_of_expm", [X], dx.trace(derivatrix.expm(X))),
    function("expm_along", [s, X, y], derivatrix.expm(s * X) @ y),
    function("expm_action", [X, C], dx.sum(C * derivatrix.expm(X @ X / n)), wrt=[X]),
    function("third", [X, C, y], y @ derivatrix.expm(X / n) @ C @ derivatrix.expm(X / n) @ y),
    function("matrix_logarithm", [S, X], dx.trace(derivatrix.logm(S) @ X), wrt=[S]),
    function("logm", [V], derivatrix.logm(V)),
    function("entropy", [S], dx.trace(S @ derivatrix.logm(S) - S)),
    function("sqrtm", [V], derivatrix.sqrtm(V)),
    function("whitened", [S, y], dx.sum(dx.cos(dx.solve(derivatrix.sqrtm(S), y)))),
    function("trace_of_root", [S], dx.trace(derivatrix.sqrtm(S)) ** 2),
    function("lower_root", [L, y], dx.sum((derivatrix.sqrtm(L @ L) @ y) ** 2), wrt=[y]),
    function("root_of_a_power", [V], derivatrix.fractional_matrix_power(V, 0.3)),
    function(
        "powers_by_a_number",
        [S, t],
        dx.sum(derivatrix.fractional_matrix_power(S, t))
        + dx.trace(derivatrix.fractional_matrix_power(S, -1.5) @ S @ S),
    ),
    function("swish", [K, y], y @ derivatrix.funm(lambda z: z / (1 + sympy.exp(-z)), K) @ y),
    function("error_function", [K, X], dx.sum(derivatrix.funm(K, sympy.erf) * X)),
    function("absolute", [K], dx.sum(derivatrix.funm(K, abs(sympy.Symbol("z"))) ** 2) + K[0, 1]),
    function("cosine", [X, y], y @ derivatrix.cosm(X) @ y),
    function("sine", [K], dx.trace(derivatrix.sinm(K))),
    function("tanh", [X], dx.trace(derivatrix.tanhm(X))),
    function("tanh_action", [X, y], dx.sum((derivatrix.tanhm(X) @ y) ** 2)),
    function("batch_expm", [X, y], y @ derivatrix.expm(X) @ y, batch=[X]),
    function("rayleigh", [y, X], (y @ X @ y) / (y @ y)),
    function("solve_spd", [S, y], y @ dx.solve(S, y)),
    function("triangular", [L, y], dx.solve(L, y)),
    function("determinant", [F], dx.det(F) ** 2),
    function("adjugate", [F], derivatrix.adjugate(F)),
    function("adjugate_terms", [F], derivatrix.adjugate_jacobian(F)[0] @ F),
    function("adjugate_along", [F], derivatrix.adjugate_derivative(F, F @ F)),
    function("exponential", [X], derivatrix.expm(X / n)),
    function("symmetric_vectors", [K, y], y @ dx.eigh(K).eigenvectors),
    function("extremal", [R, y], dx.norm(R, 1) * y + dx.max(y)),
    function("ordered", [R, y], y @ dx.sort(R, axis=0) + dx.sort(y @ R) ** 2),
    function("gathered", [R, y], dx.tanh(R)[y] * y[:, None] + y[y][:, None], wrt=[R]),
    function("product", [R, y], dx.prod(R, axis=1) @ dx.sin(y) * dx.prod(y)),
    function("sympy_mixed", [Ms, X], dx.trace(X) + sympy.Trace(Ms.T * Ms)),
    function("classifier_loss", [x, W, b], -dx.log_softmax(W @ x + b)[0], batch=[x]),
    function("batch_solve", [V, y], dx.solve(V, y), batch=[V, y]),
    function(
        "halves",
        [dx.vector("h", 2 * n)],
        dx.vector("h", 2 * n)[:n] @ dx.tanh(dx.vector("h", 2 * n)[n:]),
    ),
]
"""Functions whose kernels are compiled with --rest only, since that takes long; their
derivatives and formulas are evaluated in every run."""
