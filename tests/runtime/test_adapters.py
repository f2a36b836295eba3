"""Common parts of all adapters: sizes from shapes, required packages, the modules that are
adapted."""

import pickle
import re
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import derivatrix as dx
from derivatrix.adapted import module_of
from derivatrix.runtime.adapters.packages import require_package
from derivatrix.runtime.adapters.second import second_of
from derivatrix.runtime.adapters.sizes import sizes_of
from derivatrix.runtime.errors import LoadError, MissingPackageError, ShapeError, UnsupportedError
from derivatrix.runtime.interface import ModuleInterface
from tests import ROOT
from tests.full_matrices import POINT, STRUCTURES, full, nearest


def interface_of(*shapes, batch=()):
    arrays = [dx.tensor(f"A{place}", *shape) for place, shape in enumerate(shapes)]
    total = sum((dx.sum(array) for array in arrays), dx.constant(0.0))
    return ModuleInterface(dx.compile(dx.function("total", arrays, total, batch=batch)))


def test_sizes_are_read_from_shapes():
    n, m = dx.dims("n m")
    interface = interface_of((n + 1, 3), (n * m,), (m**2 + m,), batch=["A0"])
    result = sizes_of(interface, {"A0": (7, 5, 3), "A1": (8,), "A2": (6,)})
    assert result == {"n": 4, "m": 2, "batch": 7}


def test_sizes_are_read_from_differences_and_from_later_axes():
    n, m, p = dx.dims("n m p")
    interface = interface_of((n + p, p + 1), (m, m - n), (p + 100,), (n - 500,))
    shapes = {"A0": (604, 4), "A1": (900, 299), "A2": (103,), "A3": (101,)}
    assert sizes_of(interface, shapes) == {"n": 601, "m": 900, "p": 3}


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ({"A0": (3, 2), "A1": (4,)}, r"A1 has shape \(4,\); expected \(n,\) with n = 3"),
        ({"A0": (3,), "A1": (3,)}, r"A0 has shape \(3,\); expected \(n, m\)"),
    ],
)
def test_shapes_that_disagree_are_named(shapes, said):
    n, m = dx.dims("n m")
    with pytest.raises(ShapeError, match="total: argument " + said):
        sizes_of(interface_of((n, m), (n,)), shapes)


def test_a_missing_package_is_named_with_what_installs_it():
    with pytest.raises(MissingPackageError, match=r"needs absent_package 1.0 .*derivatrix\[absent"):
        require_package("absent_package", "1.0")
    with pytest.raises(MissingPackageError, match=f"numpy 99 or newer; found {np.__version__}"):
        require_package("numpy", "99")
    assert require_package("numpy", "2.0") is np


def test_adapters_need_the_versions_that_the_extras_install():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    texts = [
        path.read_text("utf-8")
        for folder in ("derivatrix", "runtime/adapters")
        for path in (ROOT / folder).glob("*.py")
    ]
    needed = dict(re.findall(r'require_package\("(\w+)", "([\d.]+)"\)', "".join(texts)))
    assert needed.keys() == {"dask", "jax", "pytensor", "torch"}
    for name, version in needed.items():
        assert extras["optional-dependencies"][name][0].endswith(f">={version}")


def test_a_declared_function_is_compiled():
    X = dx.matrix("X", 2, 2)
    declared = dx.function("square", [X], X @ X)
    assert module_of(declared) is dx.compile(declared)
    with pytest.raises(dx.DeclarationError, match="square"):
        module_of("square")


# Modules with second derivatives

MATRIX = dx.matrix("X", 2, 2)
SQUARE = dx.function("square", [MATRIX], MATRIX @ MATRIX)
POINTS = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.eye(2), np.ones((2, 2))]
PRINT_SECOND = (
    "from derivatrix.runtime.adapters.second import second_of\n"
    "from derivatrix.runtime.interface import ModuleInterface\n"
    "print(second_of(ModuleInterface(module)).module.vjp([[1, 2], [3, 4]], [[1, 0], [0, 1]], "
    "[[1, 1], [1, 1]]).tolist())"
)


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("second")
    dx.build(SQUARE, folder / "generated", verify=False, second=True)
    return folder / "generated"


def test_a_declared_function_has_a_second_module_of_its_own_process():
    second = second_of(ModuleInterface(dx.compile(SQUARE)))
    assert second.name == "square_second" and second.primal == dx.compile(SQUARE).DIGEST
    assert [entry.name for entry in second.directions] == ["dX"]
    np.testing.assert_array_equal(second.module.vjp(*POINTS), 2 * np.ones((2, 2)))
    assert second_of(ModuleInterface(dx.compile(SQUARE))).module is second.module


def test_the_second_module_is_found_beside_a_module(package):
    second = second_of(ModuleInterface(dx.load(package / "square.py")))
    np.testing.assert_array_equal(second.module.vjp(*POINTS), 2 * np.ones((2, 2)))
    program = f"from generated import square as module\n{PRINT_SECOND}"
    printed = subprocess.run(
        [sys.executable, "-c", program], cwd=package.parent, capture_output=True, text=True
    )
    assert printed.stdout == "[[2.0, 2.0], [2.0, 2.0]]\n", printed.stderr


def test_the_second_module_of_another_process_is_found_in_the_cache():
    module = dx.compile(SQUARE)
    second_of(ModuleInterface(module))
    program = f"import pickle, sys\nmodule = pickle.load(sys.stdin.buffer)\n{PRINT_SECOND}"
    printed = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(module), capture_output=True
    )
    assert printed.stdout == b"[[2.0, 2.0], [2.0, 2.0]]\n", printed.stderr


def test_a_second_module_that_is_not_there_or_of_another_build(package, tmp_path):
    dx.build(SQUARE, tmp_path / "generated", verify=False)
    module = dx.load(tmp_path / "generated" / "square.py")
    said = "square: has no second derivatives: .* no module square_second .*build --second"
    with pytest.raises(UnsupportedError, match=said):
        second_of(ModuleInterface(module))
    cube = dx.function("square", [MATRIX], MATRIX @ MATRIX @ MATRIX)
    dx.build(cube, tmp_path / "cube", verify=False)
    shutil.copy(package / "square_second.py", tmp_path / "cube")
    shutil.copy(package / "_formulas" / "square_second.py", tmp_path / "cube" / "_formulas")
    with pytest.raises(LoadError, match="square_second: is of another build than square"):
        second_of(ModuleInterface(dx.load(tmp_path / "cube" / "square.py")))


@pytest.mark.parametrize("structure", [*STRUCTURES, "orthogonal"])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_inputs_are_checked_for_their_structure_where_that_is_asked_for(structure, real):
    n = dx.dims("n")
    M, x = dx.matrix("M", n, n, structure), dx.vector("x", n)
    module = dx.compile(dx.function(f"product_{structure}", [M, x], M @ x))
    if structure == "orthogonal":
        right = np.linalg.qr(full())[0].astype(real)
    else:
        right = nearest(structure, full().astype(real))
    wrong = right.copy()
    wrong[0, 2] += 1e-3
    wrong[2, 0] -= 1e-3
    dx.require_structures(module, right, POINT)
    dx.require_structures(module, x=[1, np.nan, 2], M=right)
    said = f"argument M is declared {structure}, .* is not: it differs by"
    with pytest.raises(dx.DeclarationError, match=said):
        dx.require_structures(module, wrong, POINT)
    with pytest.raises(ShapeError, match=r"M has shape \(3, 2\)"):
        dx.require_structures(module, right[:, :2], POINT)
    with pytest.raises(dx.UnsupportedError, match="it takes M, x"):
        dx.require_structures(module, right)


@pytest.mark.parametrize("name", ["dask", "jax", "pytensor", "scipy", "torch"])
def test_adapters_are_there_without_their_packages(name):
    """`import derivatrix` suffices, before the other package is imported."""
    code = f"import sys, derivatrix; derivatrix.{name}; print({name!r} in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == str(name == "scipy")
