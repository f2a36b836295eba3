"""PyTorch's own checkers, over every example and more functions."""

from types import ModuleType

import numpy as np
import pytest
import torch
from torch.autograd.gradcheck import GradcheckError, gradcheck, gradgradcheck

import derivatrix as dx
import derivatrix.torch
from derivatrix.runtime.errors import UnsupportedError
from tests.adapters.torch.cases import FUNCTIONS, OTHERS, generated, operator, rotating, tensors
from tests.full_matrices import POINT, STRUCTURES, full, nearest, product, scalar

ALL = [*FUNCTIONS, *(pytest.param(name, marks=pytest.mark.thorough) for name in OTHERS)]
pytestmark = pytest.mark.filterwarnings("ignore:Backwards compatibility")


@pytest.mark.parametrize("name", ALL)
def test_gradcheck_in_both_modes_and_under_vmap(name):
    op = operator(name)
    given = tensors(op)
    function = rotating(op, given)
    batched = {"check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(function, given, check_forward_ad=True, **batched)
    assert gradgradcheck(function, given, check_fwd_over_rev=True)


def test_a_second_backward_without_second_derivatives_is_refused(tmp_path):
    """The gradient by the cotangent alone is a JVP, and is there."""
    dx.build(FUNCTIONS["square"], tmp_path / "out", verify=False)
    op = derivatrix.torch.operator(dx.load(tmp_path / "out" / "square.py"))
    (X,) = tensors(op)
    cotangent = torch.ones_like(X, requires_grad=True)
    (first,) = torch.autograd.grad(op(X), X, cotangent, create_graph=True)
    (product,) = torch.autograd.grad(first.sum(), cotangent, retain_graph=True)
    torch.testing.assert_close(product, torch.ones_like(X) @ X + X @ torch.ones_like(X))
    with pytest.raises(UnsupportedError, match=r"square: has no second derivatives.*--second"):
        first.sum().backward()
    dx.build(FUNCTIONS["square"], tmp_path / "second", verify=False, second=True)
    op = derivatrix.torch.operator(dx.load(tmp_path / "second" / "square.py"))
    assert gradgradcheck(op, [X])


@pytest.mark.parametrize("name", ["energy", "square"])
def test_a_third_backward_is_refused(name):
    op = operator(name)
    (X,) = tensors(op)
    (first,) = torch.autograd.grad(op(X).sum(), X, create_graph=True)
    (second,) = torch.autograd.grad((first**2).sum(), X, create_graph=True)
    with pytest.raises(UnsupportedError, match=f"{name}.*: there are no third derivatives"):
        second.sum().backward()


SINGLE = ("square", "energy", "product", "classifier", "loss", "stack", "numbers")
"""The functions that are compiled for single precision, too, without `--rest`."""


@pytest.mark.parametrize("name", ALL)
def test_opcheck(name):
    op = operator(name)
    result = torch.library.opcheck(op, tensors(op))
    assert len(result) == 4 and {*result.values()} == {"SUCCESS"}


@pytest.mark.parametrize(
    "name",
    [
        name if name in SINGLE else pytest.param(name, marks=pytest.mark.thorough)
        for name in FUNCTIONS | OTHERS
    ],
)
def test_single_precision(name):
    op = operator(name)
    checked = torch.library.opcheck(op, tensors(op, torch.float32), rtol=1e-3, atol=1e-3)
    assert {*checked.values()} == {"SUCCESS"}
    arguments = tensors(op, torch.float32)
    value = op(*arguments)
    exact = op(*(tensor.double() for tensor in arguments))
    assert value.dtype == torch.float32 and exact.dtype == torch.float64
    torch.testing.assert_close(value.double(), exact, rtol=1e-4, atol=1e-4)
    value.sum().backward()
    assert {tensor.grad.dtype for tensor in arguments if tensor.requires_grad} == {torch.float32}


def spoilt(module, kind):
    """A copy of a module, one of whose functions is off by 1e-4."""
    copy = ModuleType(module.__name__)
    vars(copy).update(vars(module))

    def wrong(*arguments):
        return getattr(module, kind)(*arguments) * (1 + 1e-4)

    setattr(copy, kind, wrong)
    return copy


@pytest.mark.parametrize(
    ("kind", "check", "options"),
    [
        ("vjp", gradcheck, {}),
        ("jvp", gradcheck, {"check_forward_ad": True}),
        ("hvp", gradgradcheck, {}),
    ],
)
def test_a_planted_fault_of_a_ten_thousandth_is_refused(kind, check, options):
    module = generated("energy")
    given = [torch.tensor(np.eye(3) + 0.5, requires_grad=True)]
    tight = {"eps": 1e-6, "atol": 1e-6, "rtol": 1e-5, **options}
    assert check(derivatrix.torch.operator(module), given, **tight)
    with pytest.raises(GradcheckError, match=r"Jacobian .*mismatch"):
        check(derivatrix.torch.operator(spoilt(module, kind)), given, **tight)


# Full matrices as structured inputs


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_full_matrix_counts_as_the_nearest_of_its_structure(structure):
    close = nearest(structure, full())
    for module in (product(structure), scalar(structure)):
        op = derivatrix.torch.operator(module)
        arguments = [torch.tensor(array, requires_grad=True) for array in (full(), POINT)]
        value = op(*arguments)
        np.testing.assert_allclose(value.detach(), module.value(close, POINT), rtol=1e-14)
        gradients = torch.autograd.grad(value.sum(), arguments)
        expected = module.vjp(close, POINT, np.ones(value.shape))
        for one, other in zip(gradients, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)
        assert gradcheck(op, arguments, check_forward_ad=True, check_batched_grad=True)
        assert gradgradcheck(op, arguments, check_fwd_over_rev=True)


def test_what_a_triangular_input_does_not_have_is_not_read():
    op = derivatrix.torch.operator(scalar("lower"))
    matrix = torch.tensor(np.where(np.triu(np.ones((3, 3)), 1), np.nan, full()), requires_grad=True)
    op(matrix, torch.tensor(POINT)).backward()
    assert matrix.grad.isfinite().all()
