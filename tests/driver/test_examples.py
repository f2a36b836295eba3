"""Every example is run on its real input and verified; spoilt, it fails."""

import importlib.util
from types import ModuleType

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.compiler.frontends.function_file import load_functions
from tests import ROOT
from tests.points import leaves

EXAMPLES = ("square", "elementwise_product", "classifier", "equation", "digits")
FUNCTIONS = {
    function.name: function
    for name in EXAMPLES
    for function in load_functions(ROOT / "examples" / f"{name}.py")
}
KINDS = [(name, kind) for name, function in FUNCTIONS.items() for kind in function.kinds]


def example(name):
    """The example as a module, as `python examples/NAME.py` runs it, but for its main()."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / f"examples/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_tested():
    assert sorted(EXAMPLES) == sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_generated_module_is_right(name):
    report = dx.verify(dx.compile(FUNCTIONS[name]))
    assert report.passed, str(report)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_a_function_that_is_off_by_a_ten_thousandth_fails(name, kind):
    """One entry of each returned array is moved by 1e-4 of the largest entry."""
    module = dx.compile(FUNCTIONS[name])
    for position in range(count(module, kind)):
        assert not dx.verify(spoilt(module, kind, position)).passed


def count(module, kind):
    """Count the arrays that a function returns."""
    names = sum(entry["wrt"] for entry in module.INPUTS)
    if kind in ("value", "jvp"):
        return 1
    return {"value_and_gradient": 1 + names, "hessian": names**2}.get(kind, names)


def spoilt(module, kind, position):
    """A copy of a module, one of whose functions is wrong in the array at `position`."""
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module))
    right = getattr(module, kind)

    def wrong(*arguments, out=None):
        result = right(*arguments) if out is None else right(*arguments, out=out)
        leaf = leaves(result)[position]
        index = np.unravel_index(leaf.size // 2, leaf.shape)
        leaf[index] += 1e-4 * (np.abs(leaf).max() or 1.0)
        return result

    setattr(copy, kind, wrong)
    return copy


# What the forum threads asked


def test_square(capsys):
    module = example("square")
    module.main()
    printed = capsys.readouterr().out
    assert "X̄ = Ȳ Xᵀ + Xᵀ Ȳ" in printed
    assert "by differences, nice after rain: 0.500000" in printed
    X, G = np.random.default_rng(0).normal(size=(2, 3, 3))
    backward = dx.compile(module.square).vjp(X, G)
    np.testing.assert_allclose(backward, G @ X.T + X.T @ G, rtol=1e-13)
    assert not np.allclose(backward, 2 * X @ G)
    gradient = dx.compile(module.energy).gradient(X)
    np.testing.assert_allclose(gradient, dx.compile(module.square).vjp(X, 2 * X @ X), rtol=1e-12)


def test_elementwise_product(capsys):
    module = example("elementwise_product")
    module.main()
    assert "d total / d prices: [ 4. 10.  1.]" in capsys.readouterr().out
    jacobian = dx.compile(module.product).jacobian(module.PRICES, module.QUANTITIES)
    np.testing.assert_array_equal(jacobian.a, np.diag(module.QUANTITIES))
    np.testing.assert_array_equal(jacobian.b, np.diag(module.PRICES))


def test_classifier(capsys):
    module = example("classifier")
    module.main()
    assert "shape (batch, classes, dim): (150, 3, 4)" in capsys.readouterr().out
    random = np.random.default_rng(0)
    x, W, b = random.normal(size=(7, 5)), random.normal(size=(3, 5)), random.normal(size=3)
    jacobian = dx.compile(module.classifier).jacobian(x, W, b)
    np.testing.assert_allclose(jacobian, module.jacobian_by_loops(x, W, b), atol=1e-14)


def test_equation(capsys):
    module = example("equation")
    module.main()
    printed = capsys.readouterr().out
    assert "heat warms the middle most at (4, 7)" in printed
    middle, again = (
        line.partition(": ")[2].partition(",")[0]
        for line in printed.splitlines()
        if "the middle" in line and ": " in line
    )
    assert middle == again


def test_digits(capsys, tmp_path):
    picture = tmp_path / "saliency.png"
    accuracy = example("digits").main(["--output", str(picture)])
    assert accuracy > 0.95
    assert f"accuracy on 450 pictures kept back: {accuracy:.1%}" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 5000
