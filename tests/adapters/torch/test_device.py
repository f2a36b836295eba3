"""Operators of modules for CUDA devices, on a device; left out where there is none."""

import pytest
import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck

import derivatrix as dx
import derivatrix.torch
from tests.adapters.torch import cases
from tests.adapters.torch.cases import FUNCTIONS, rotating, tensors

pytestmark = [
    pytest.mark.device,
    pytest.mark.filterwarnings("ignore:Backwards compatibility"),
]


def operator(name):
    """The operator of a function's module for devices."""
    return derivatrix.torch.operator(dx.compile(FUNCTIONS[name], target="cuda"))


def there(given, dtype=torch.float64):
    """Copies of tensors on the device."""
    return [
        tensor.detach().to("cuda", dtype).requires_grad_(tensor.requires_grad) for tensor in given
    ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_checkers_of_pytorch(name):
    op = operator(name)
    given = there(tensors(op))
    checked = torch.library.opcheck(op, given)
    assert len(checked) == 4 and {*checked.values()} == {"SUCCESS"}
    function = rotating(op, given)
    assert gradcheck(function, given, check_forward_ad=True, check_batched_grad=True)
    if "hvp" in op.family.operators:
        assert gradgradcheck(function, given, check_fwd_over_rev=True)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_the_cpu(name, dtype):
    op, other = operator(name), cases.operator(name)
    here = tensors(other, dtype)
    arguments = there(here, dtype)
    value, expected = op(*arguments), other(*here)
    assert value.is_cuda and value.dtype == dtype
    closeness = {torch.float64: (1e-9, 1e-9), torch.float32: (1e-3, 1e-3)}[dtype]
    options = {"rtol": closeness[0], "atol": closeness[1]}
    torch.testing.assert_close(value.cpu(), expected, **options)
    value.sum().backward()
    expected.sum().backward()
    for one, two in zip(arguments, here, strict=True):
        if two.grad is not None:
            torch.testing.assert_close(one.grad.cpu(), two.grad, **options)


def test_work_is_on_the_stream_of_the_caller():
    """Its input comes late, on a stream that no other one waits for."""
    op, stream = operator("square"), torch.cuda.Stream()
    x = torch.randn(300, 300, dtype=torch.float64, device="cuda")
    given = torch.zeros_like(x).requires_grad_()
    op(given).sum().backward()  # compiled
    given.grad = None
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        given.detach().copy_(x)
        value = op(given)
        value.sum().backward()
        doubled = 2 * value
    assert not stream.query()
    stream.synchronize()
    torch.testing.assert_close(doubled, 2 * x @ x)
    ones = torch.ones_like(x)
    torch.testing.assert_close(given.grad, ones @ x.T + x.T @ ones)


def test_transformed_and_compiled():
    op = operator("energy")
    x = torch.randn(3, 3, dtype=torch.float64, device="cuda")

    def reference(X):
        return torch.trace((X @ X).T @ (X @ X))

    hessian = torch.func.hessian(reference)(x)
    torch.testing.assert_close(torch.func.jacfwd(torch.func.jacrev(op))(x), hessian)
    compiled = torch.compile(lambda x: 2 * op(x) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(x), 2 * reference(x) + 1)


def test_out_and_what_is_not_on_the_device():
    op = operator("square")
    x = torch.randn(5, 5, dtype=torch.float64, device="cuda")
    out = torch.empty_like(x)
    assert op(x, out=out) is out
    torch.testing.assert_close(out, x @ x)
    torch.testing.assert_close(op(x.T), x.T @ x.T)
    with pytest.raises(dx.UnsupportedError, match="argument X is a tensor on cpu; expected one on"):
        op(x.cpu())
