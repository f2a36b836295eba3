// Functions to click: title, text, inputs, and by which to differentiate where not by all.
export const EXAMPLES = [
  { title: "quadratic form", f: "x'*A*x", in: "x: n; A: n n", wrt: "x" },
  { title: "square X X", f: "X*X", in: "X: n n" },
  { title: "Gaussian likelihood", f: "logdet(S) + tr(inv(S)*C)", in: "S: n n spd; C: n n", wrt: "S" },
  { title: "ridge regression", f: "normF(X*W - Y)^2 + s*sum(W.^2)", in: "X: N d; W: d k; Y: N k; s: positive", wrt: "W" },
  { title: "logistic regression", f: "sum(log(1 + exp(-y.*(X*w))))", in: "y: m; X: m n; w: n", wrt: "w" },
  { title: "softmax layer", f: "softmax(W*x + b)", in: "W: k d; x: d; b: k" },
  { title: "matrix inverse", f: "inv(X)", in: "X: n n invertible" },
  { title: "solve A x = b", f: "solve(A, b)", in: "A: n n invertible; b: n" },
  { title: "log determinant", f: "logdet(X'*A*X)", in: "X: n m; A: n n spd", wrt: "X" },
  { title: "Kronecker product", f: "kron(A, B)", in: "A: m n; B: p q" },
  { title: "matrix exponential", f: "expm(X)", in: "X: n n" },
  { title: "Cholesky factor", f: "chol(S)", in: "S: n n spd" },
  { title: "largest eigenvalue", f: "lambda_max(S)", in: "S: n n symmetric" },
  { title: "Lyapunov equation", f: "tr(lyap(A, Q))", in: "A: n n; Q: n n spd", wrt: "A" },
  { title: "attention", f: "softmax(Q*K'/sqrt(d))*V", in: "Q: n d; K: m d; V: m k", wrt: "Q" },
  { title: "einsum", f: 'einsum("ijk,j,k->i", T, x, y)', in: "T: n m k; x: m; y: k", wrt: "x" },
];
