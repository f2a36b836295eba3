"""Operators under torch.autocast compute in float32, as PyTorch's own linear algebra does."""

import pytest
import torch

import derivatrix as dx
import derivatrix.torch
from derivatrix.runtime.errors import UnsupportedError

n = dx.dims("n")
S, y = dx.matrix("S", n, n, "spd"), dx.vector("y", n)
HALF = [torch.bfloat16, torch.float16]


@pytest.fixture(scope="module")
def density():
    value = dx.logdet(S) + y @ dx.solve(S, y)
    return derivatrix.torch.operator(dx.function("density", [S, y], value))


def reference(S, y):
    """PyTorch's own functions, all of them of float32 under autocast."""
    return torch.logdet(S) + (y * torch.linalg.solve(S, y)).sum()


def arguments(dtype):
    random = torch.Generator().manual_seed(0)
    factor, y = torch.randn(3, 3, generator=random), torch.randn(3, generator=random)
    inputs = (factor @ factor.T + torch.eye(3)).to(dtype), y.to(dtype)
    return [tensor.requires_grad_() for tensor in inputs]


@pytest.mark.parametrize("half", HALF)
@pytest.mark.parametrize("compiled", [False, True])
def test_values_and_gradients(density, half, compiled):
    def loss(S, y):
        with torch.autocast("cpu", dtype=half):
            value = density(S, y)
        assert value.dtype == torch.float32
        return value

    inputs = arguments(half)
    call = torch.compile(loss, fullgraph=True) if compiled else loss
    value = call(*inputs)
    value.backward()
    singles = [tensor.detach().float().requires_grad_() for tensor in inputs]
    expected = reference(*singles)
    expected.backward()
    torch.testing.assert_close(value, expected)
    for tensor, single in zip(inputs, singles, strict=True):
        assert tensor.grad.dtype == half
        torch.testing.assert_close(tensor.grad, single.grad.to(half))


def test_a_layer_and_a_backward_pass_within(density):
    linear = torch.nn.Linear(3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rows = linear(torch.eye(3))
        assert rows.dtype == torch.bfloat16
        density(rows @ rows.T + torch.eye(3), rows[0]).backward()
    assert linear.weight.grad.dtype == torch.float32 and linear.weight.grad.any()


@pytest.mark.parametrize("half", HALF)
def test_functions_of_torch_func(density, half):
    S, y = (tensor.detach() for tensor in arguments(half))
    single, vector = S.float(), y.float()
    with torch.autocast("cpu", dtype=half):
        gradient = torch.func.grad(density)(S, y)
        hessian = torch.func.hessian(density, argnums=1)(S, y)
        values = torch.vmap(density, (None, 0))(S, torch.stack([y, 2 * y]))
        _, tangent = torch.func.jvp(lambda y: density(S, y), (y,), (y,))
    expected = torch.func.grad(reference)(single, vector)
    torch.testing.assert_close(gradient, expected.to(half))
    torch.testing.assert_close(hessian, (2 * torch.linalg.inv(single)).to(half))
    torch.testing.assert_close(values[1], reference(single, 2 * vector))
    torch.testing.assert_close(tangent, 2 * vector @ torch.linalg.solve(single, vector))


def test_double_precision_stays_and_half_precision_is_refused_outside(density):
    S, y = (tensor.detach() for tensor in arguments(torch.float64))
    with torch.autocast("cpu"):
        assert density(S, y).dtype == torch.float64
        assert density(y=y.bfloat16(), S=S.float()).dtype == torch.float32
        with torch.autocast("cpu", enabled=False), pytest.raises(UnsupportedError, match="bfloat"):
            density(S, y.bfloat16())
    with pytest.raises(UnsupportedError, match="density: argument y is a tensor of torch"):
        density(S, y.bfloat16())
