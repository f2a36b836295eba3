"""How do I get the (batch, classes, dim) Jacobian of a classifier without a loop over classes?

By its closed form. For p = softmax(W x + b), d p[c] / d x[j] = p[c] (W[c, j] - Σ_k p[k] W[k, j]),
for all samples, classes and inputs at once; `batch=[x]` says that x has a row for each sample
while W and b are shared by all.

The input is Fisher's iris data: 150 flowers, 4 measurements, 3 kinds, and a classifier fitted by
scikit-learn.

Run: python examples/classifier.py
"""

import numpy as np
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import derivatrix as dx

c, d = dx.dims("c d")
x = dx.vector("x", d)
W = dx.matrix("W", c, d)
b = dx.vector("b", c)
classifier = dx.function("classifier", [x, W, b], dx.softmax(W @ x + b), wrt=[x], batch=[x])


def jacobian_by_loops(samples: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The same array, one sample and one class at a time."""
    rows = []
    for sample in samples:
        scores = np.exp(weights @ sample + bias)
        p = scores / scores.sum()
        rows.append([p[k] * (weights[k] - p @ weights) for k in range(len(p))])
    return np.array(rows)


def main() -> None:
    print("Jacobian, entry [sample, class, input]:", classifier.formula("jacobian", "x", "index"))

    data = load_iris()
    fitted = LogisticRegression(max_iter=1000).fit(data.data, data.target)
    weights, bias = fitted.coef_, fitted.intercept_

    module = dx.compile(classifier)
    jacobian = module.jacobian(data.data, weights, bias)
    print("shape (batch, classes, dim):", jacobian.shape)
    error = np.abs(jacobian - jacobian_by_loops(data.data, weights, bias)).max()
    print(f"largest difference from the loops: {error:.1e}")

    virginica = np.abs(jacobian[:, 2]).mean(axis=0)
    print("what moves the probability of Iris virginica, on average per cm:")
    for name, slope in zip(data.feature_names, virginica, strict=True):
        print(f"  {name.removesuffix(' (cm)')}: {slope:.3f}")


if __name__ == "__main__":
    main()
