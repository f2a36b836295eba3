"""Functions whose modules have every file of the support between them."""

import derivatrix as dx

n, m, k = dx.dims("n m k")
P, S = dx.matrix("P", n, n), dx.matrix("S", n, n, "spd")
Q, x = dx.matrix("Q", n, m), dx.vector("x", n)


def written(name: str, text: str, wrt: str, **inputs: str) -> dx.Function:
    return dx.function(name, [*inputs], dx.parse(text, **inputs), wrt=wrt.split())


square = written("square", "X*X", "X", X="n n")
classifier = written("classifier", "sum(Y.*log(softmax(X*W)))", "W", X="n m", W="m k", Y="n k")
maxima = dx.function("maxima", [Q], dx.max(Q, axis=1) * dx.logsumexp(Q, axis=0)[0])
likelihood = written("likelihood", "logdet(S) + x'*solve(S,x)", "S x", S="n n spd", x="n")
ratio = dx.function("ratio", [S, x], x / dx.cholesky((x @ S @ x)[None, None])[0, 0])
factor = written("factor", "chol(S)*x", "S", S="n n spd", x="n")
rotation = written("rotation", "expm(skew(w))*v", "w v", w="3", v="3")
determinant = written("determinant", "det(X) + prod(X*x)", "X", X="n n", x="n")
spectrum = written("spectrum", "sum(exp(eigvals(A*S)))", "S", A="n n spd", S="n n spd")
axes = written("axes", "eighV(S)*x", "S", S="3 3 spd", x="3")
nuclear = written("nuclear", "normnuc(X)", "X", X="n m")
powers = written("powers", "sqrtm(S) + cosm(S)", "S", S="n n spd")
logarithm = written("logarithm", "logm(S)", "S", S="n n spd")
tails = written("tails", "log(besseli(0, x)) + normcdf(x).*sin(x)", "x", x="n")
regulator = written("regulator", "dare(A,B,Q,R)", "A", A="n n", B="n m", Q="n n spd", R="m m spd")
root = dx.function("root", [S], dx.root(P @ P - S, P, S))
samples = dx.function("samples", [S, x], dx.softmax(dx.solve(S, x)), batch=[S, x])
