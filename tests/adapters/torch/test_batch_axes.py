"""Batch axes under PyTorch: any number, which broadcast, and nested vmap by one call."""

import pytest
import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck

import derivatrix as dx
import derivatrix.torch

n, d = dx.dims("n d")
Q, K, V = (dx.matrix(name, n, d) for name in "QKV")
x, W, y = dx.vector("x", n), dx.matrix("W", d, n), dx.vector("y", d)
AXES = [((2, 4), (2, 4)), ((), ()), ((2, 1), (1, 3)), ((2, 3), ()), ((3,), (2, 1)), ((0, 2), (1,))]


def random(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.fixture(scope="module")
def attention():
    value = dx.softmax(Q @ K.T / dx.sqrt(d)) @ V
    return derivatrix.torch.operator(dx.function("attention", [Q, K, V], value, batch=[Q, K, V]))


@pytest.fixture(scope="module")
def layers():
    """The modules of a function of one sample and of the same one with batch axes."""
    value = y * dx.tanh(W @ x)
    one = dx.compile(dx.function("layer", [x, W, y], value))
    return one, dx.compile(dx.function("layers", [x, W, y], value, batch=[x, y]))


def by_torch(x, W, y):
    return y * torch.tanh(x @ W.T)


@pytest.fixture
def counted(layers, monkeypatch):
    """The calls of the modules' functions while a test runs."""
    calls = []
    for module in layers:
        for kind in ("value", "vjp", "jvp"):
            function = getattr(module, kind)

            def counting(*arrays, kind=kind, function=function, **options):
                calls.append(kind)
                return function(*arrays, **options)

            monkeypatch.setattr(module, kind, counting)
    return calls


def test_attention_of_a_batch_and_heads(attention):
    tensors = [random(2, 4, 5, 3) for _ in range(3)]
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors)
    result = attention(*tensors)
    torch.testing.assert_close(result, expected)
    for ours, theirs in zip(
        torch.autograd.grad(result.sin().sum(), tensors),
        torch.autograd.grad(expected.sin().sum(), tensors),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
    strided = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in tensors]
    torch.testing.assert_close(attention(*strided), expected)
    shared = [tensors[0], tensors[1][:1, :1], tensors[2][0]]
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *(t.expand(2, 4, 5, 3) for t in shared)
    )
    torch.testing.assert_close(attention(*shared), theirs)
    assert gradcheck(attention, [random(1, 2, 2, 2), random(2, 1, 2, 2), random(2, 2)])


@pytest.mark.parametrize(("x_axes", "y_axes"), AXES)
def test_values_and_derivatives(layers, x_axes, y_axes):
    op = derivatrix.torch.operator(layers[1])
    tensors = [random(*x_axes, 3), random(2, 3), random(*y_axes, 2)]
    torch.testing.assert_close(op(*tensors), by_torch(*tensors))
    with torch.inference_mode():
        torch.testing.assert_close(op(*tensors), by_torch(*tensors))
    batched = {"check_batched_grad": True, "check_batched_forward_grad": True}
    if 0 not in x_axes:
        assert gradcheck(op, tensors, check_forward_ad=True, **batched)
    assert {*torch.library.opcheck(op, tensors).values()} == {"SUCCESS"}


def test_second_derivatives_of_scalar_functions():
    loss = dx.function("loss", [x, s := dx.scalar("s"), W], s * dx.logsumexp(W @ x), batch=[x, s])
    op = derivatrix.torch.operator(loss)
    for axes in ((2, 2), (), (1, 2)):
        tensors = [random(*axes, 3), random(2, 1), random(2, 3)]
        assert gradgradcheck(op, tensors, check_fwd_over_rev=True)


def test_second_derivatives_of_array_functions(layers):
    op = derivatrix.torch.operator(layers[1])
    assert gradgradcheck(op, [random(2, 1, 3), random(2, 3), random(2, 2)])


def test_vmap_twice_is_one_call(layers, counted):
    one, many = layers
    tensors = [random(4, 5, 3), random(2, 3), random(4, 5, 2)]
    dims = (0, None, 0)
    for op in (derivatrix.torch.operator(one, batched=many), derivatrix.torch.operator(many)):
        counted.clear()
        twice = torch.vmap(torch.vmap(op, dims), dims)
        torch.testing.assert_close(twice(*tensors), by_torch(*tensors))
        assert counted == ["value"]
        gradients = torch.func.grad(lambda *a, op=op: op(*a).sin().sum(), (0, 2))
        expected = torch.func.grad(lambda *a: by_torch(*a).sin().sum(), (0, 2))
        for ours, theirs in zip(
            torch.vmap(torch.vmap(gradients, dims), dims)(*tensors), expected(*tensors), strict=True
        ):
            torch.testing.assert_close(ours, theirs)


def test_gradients_of_all_inputs_under_vmap_twice_are_one_call(monkeypatch):
    product = dx.compile(dx.function("product", [x, y], dx.sum(x) * y, batch=[x, y]))
    op, calls = derivatrix.torch.operator(product), []
    for kind in ("value", "vjp"):
        function = getattr(product, kind)
        monkeypatch.setattr(
            product, kind, lambda *a, f=function, k=kind, **b: (calls.append(k), f(*a, **b))[1]
        )
    tensors = [random(4, 5, 3), random(4, 5, 2)]
    gradients = torch.func.grad(lambda x, y: op(x, y).sin().sum(), (0, 1))
    expected = torch.func.grad(lambda x, y: (x.sum(-1, keepdim=True) * y).sin().sum(), (0, 1))
    results = torch.vmap(torch.vmap(gradients))(*tensors)
    for ours, theirs in zip(results, expected(*tensors), strict=True):
        torch.testing.assert_close(ours, theirs)
    assert calls == ["value", "vjp"]


def test_vmap_over_one_of_several_batch_axes(layers, counted):
    op = derivatrix.torch.operator(layers[1])
    points, weights, factors = random(3, 6), random(2, 3), random(4, 2)
    mapped = torch.vmap(op, (1, None, None))(points, weights, factors)
    assert counted == ["value"]
    torch.testing.assert_close(mapped, by_torch(points.T[:, None], weights, factors))


def test_compiled(layers):
    op = derivatrix.torch.operator(layers[1])
    for dynamic in (False, True):
        compiled = torch.compile(
            lambda *tensors: op(*tensors), fullgraph=True, dynamic=dynamic, backend="aot_eager"
        )
        for axes in ((2, 4), (3, 1)):
            tensors = [random(*axes, 3), random(2, 3), random(axes[1], 2)]
            expected = by_torch(*tensors)
            result = compiled(*tensors)
            torch.testing.assert_close(result, expected)
            for ours, theirs in zip(
                torch.autograd.grad(result.sum(), tensors),
                torch.autograd.grad(expected.sum(), tensors),
                strict=True,
            ):
                torch.testing.assert_close(ours, theirs)


def test_out(layers):
    op = derivatrix.torch.operator(layers[1])
    tensors = [t.detach() for t in (random(4, 1, 3), random(2, 3), random(5, 2))]
    out = torch.empty(4, 5, 2, dtype=torch.float64)
    assert op(*tensors, out=out) is out
    torch.testing.assert_close(out, by_torch(*tensors))


def test_axes_that_do_not_fit_are_refused(layers):
    op = derivatrix.torch.operator(layers[1])
    tensors = [random(4, 3), random(2, 3), random(5, 2)]
    message = r"layers: argument y has the batch axes \(5,\); expected axes that broadcast with \(4"
    with pytest.raises(ValueError, match=message):
        op(*tensors)
    with torch.inference_mode(), pytest.raises(ValueError, match=message):
        op(*tensors)
    with pytest.raises(
        ValueError, match=r"layers: argument x has shape \(\); expected \(\*batch, n\)"
    ):
        op(random(), *tensors[1:])
