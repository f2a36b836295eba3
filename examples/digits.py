"""Multinomial logistic regression on handwritten digits, with generated derivatives.

The loss of W on pictures X (one a row) with one-hot labels Y is

    mean over samples of logsumexp(x W) - y · (x W), plus penalty/2 |W|²

and SciPy's Newton method with conjugate gradients finds the W that makes it least, from the
generated gradient and Hessian-vector product: the Hessian, 650 x 650 here, is never formed.
Then, on pictures kept back from training: the accuracy, and for some of them the Jacobian of the
probabilities by the pixels, drawn as a picture of what each decision hangs on.

Run: python examples/digits.py --output saliency.png
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import derivatrix as dx

N, d, c = dx.dims("N d c")
X = dx.matrix("X", N, d)
Y = dx.matrix("Y", N, c)
W = dx.matrix("W", d, c)
penalty = dx.scalar("penalty", "positive")
Z = X @ W
fit = dx.mean(dx.logsumexp(Z, axis=1) - dx.sum(Y * Z, axis=1))
loss = dx.function("loss", [W, X, Y, penalty], fit + penalty / 2 * dx.sum(W**2), wrt=[W])

x = dx.vector("x", d)
probabilities = dx.function("probabilities", [x, W], dx.softmax(x @ W), wrt=[x], batch=[x])


def with_bias(pictures: np.ndarray) -> np.ndarray:
    """Pixels in [0, 1] with a column of ones: (samples, 64) -> (samples, 65)."""
    return np.hstack([pictures / 16, np.ones((len(pictures), 1))])


def train(samples: np.ndarray, labels: np.ndarray, strength: float) -> np.ndarray:
    """The weights (d, c) of least loss."""
    module = dx.compile(loss)
    targets = np.eye(10)[labels]
    shape = (samples.shape[1], 10)

    def value_and_gradient(flat: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = module.value_and_gradient(flat.reshape(shape), samples, targets, strength)
        return float(value), gradient.ravel()

    def product(flat: np.ndarray, direction: np.ndarray) -> np.ndarray:
        weights, tangent = flat.reshape(shape), direction.reshape(shape)
        return module.hvp(weights, samples, targets, strength, tangent).ravel()

    found = minimize(
        value_and_gradient, np.zeros(shape).ravel(), jac=True, hessp=product, method="trust-ncg"
    )
    if not found.success:
        raise RuntimeError(f"the optimiser stopped: {found.message}")
    print(f"loss {found.fun:.4f} after {found.nit} Newton steps and {found.nhev} products")
    return found.x.reshape(shape)


def saliency(samples: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The digit found in each sample, and the derivative of its probability by each pixel."""
    module = dx.compile(probabilities)
    found = module.value(samples, weights).argmax(axis=1)
    jacobian = module.jacobian(samples, weights)  # (samples, classes, pixels)
    return found, jacobian[np.arange(len(samples)), found, :64]


def draw(samples: np.ndarray, found: np.ndarray, slopes: np.ndarray, path: Path) -> None:
    """Pictures above, below them what the decision hangs on: red pixels speak for it."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(samples), figsize=(1.6 * len(samples), 3.6))
    for column, (sample, digit, slope) in enumerate(zip(samples, found, slopes, strict=True)):
        limit = np.abs(slope).max()
        axes[0, column].imshow(sample[:64].reshape(8, 8), cmap="gray_r")
        axes[0, column].set_title(f"read as {digit}")
        axes[1, column].imshow(slope.reshape(8, 8), cmap="RdBu_r", vmin=-limit, vmax=limit)
    for panel in axes.flat:
        panel.set_axis_off()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"wrote {path}")


def main(arguments: Sequence[str] | None = None) -> float:
    parser = argparse.ArgumentParser(description="Train on scikit-learn's handwritten digits.")
    parser.add_argument("--output", type=Path, default=Path("saliency.png"), help="the picture")
    parser.add_argument("--penalty", type=float, default=1e-3, help="strength of |W|²/2")
    options = parser.parse_args(arguments)

    print("gradient of the loss:", loss.formula("gradient"))
    print("Hessian-vector product:", loss.formula("hvp"))
    pictures, labels = load_digits(return_X_y=True)
    samples, kept_back, labels, answers = train_test_split(
        with_bias(pictures), labels, test_size=0.25, random_state=0, stratify=labels
    )
    weights = train(samples, labels, options.penalty)
    found, slopes = saliency(kept_back, weights)
    accuracy = float((found == answers).mean())
    print(f"accuracy on {len(answers)} pictures kept back: {accuracy:.1%}")
    first = [int(np.flatnonzero(answers == digit)[0]) for digit in range(10)]
    draw(kept_back[first], found[first], slopes[first], options.output)
    return accuracy


if __name__ == "__main__":
    main()
