"""Operators of functions with several outputs."""

import pickle
from functools import cache

import numpy as np
import pytest
import torch
from torch.autograd.gradcheck import gradcheck, gradgradcheck

import derivatrix as dx
import derivatrix.torch
from derivatrix.runtime.errors import DeclarationError, UnsupportedError

n, m = dx.dims("n m")
x, P, H = dx.vector("x", n), dx.matrix("P", n, n), dx.matrix("H", m, n)


def outputs(x, P):
    return {"mean": dx.tanh(P @ x), "energy": dx.trace(P @ P) * dx.sum(x**2), "product": P @ P.T}


def reference(x, P):
    energy = torch.trace(P @ P) * (x**2).sum()
    return torch.tanh(P @ x), energy, P @ P.T


FUNCTION = dx.function("moments", [x, P], outputs(x, P))
BY_SAMPLE = dx.function("moments", [x, P], outputs(x, P), batch=[x])


@cache
def operator(batched=False):
    return derivatrix.torch.operator(FUNCTION, BY_SAMPLE if batched else None)


def tensors(size=3, dtype=torch.float64, requires_grad=True):
    random = np.random.default_rng(5)
    shapes = (size,), (size, size)
    return [
        torch.tensor(random.normal(size=shape), dtype=dtype, requires_grad=requires_grad)
        for shape in shapes
    ]


def test_the_value_is_a_named_tuple_of_tensors():
    inputs = tensors()
    result = operator()(P=inputs[1], x=inputs[0])
    assert result._fields == ("mean", "energy", "product")
    assert all(isinstance(part, torch.Tensor) for part in result)
    torch.testing.assert_close(tuple(result), reference(*inputs))
    single = operator()(*tensors(dtype=torch.float32))
    assert {part.dtype for part in single} == {torch.float32}


@pytest.mark.parametrize("used", [("mean",), ("energy",), ("product", "mean"), None])
def test_cotangents_of_some_outputs(used):
    def total(result):
        parts = zip(("mean", "energy", "product"), result, strict=True)
        return sum((part**2).sum() for name, part in parts if used is None or name in used)

    inputs = tensors()
    ours = torch.autograd.grad(total(operator()(*inputs)), inputs)
    expected = torch.autograd.grad(total(reference(*inputs)), inputs, allow_unused=True)
    for gradient, other, tensor in zip(ours, expected, inputs, strict=True):
        zeros = torch.zeros_like(tensor)
        torch.testing.assert_close(gradient, zeros if other is None else other)


def test_pytorch_checks():
    inputs = tensors(2)
    batched = {"check_batched_grad": True, "check_batched_forward_grad": True}
    assert gradcheck(operator(), inputs, check_forward_ad=True, **batched)
    outcomes = torch.library.opcheck(operator(), inputs)
    assert len(outcomes) == 4 and {*outcomes.values()} == {"SUCCESS"}


def test_second_derivatives():
    inputs = tensors(2)
    assert gradgradcheck(operator(), inputs, check_fwd_over_rev=True)

    def loss(function):
        return lambda x, P: sum((part**2).sum() for part in function(x, P))

    point = tensors(requires_grad=False)
    ours = torch.func.hessian(loss(operator()), (0, 1))(*point)
    torch.testing.assert_close(ours, torch.func.hessian(loss(reference), (0, 1))(*point))


def test_functions_of_torch_func():
    point, tangents = tensors(requires_grad=False), tensors(requires_grad=False)[::-1]
    tangents = [tangents[1] + 1, tangents[0].T.contiguous()]
    value, tangent = torch.func.jvp(operator(), tuple(point), tuple(tangents))
    assert value._fields == tangent._fields == ("mean", "energy", "product")
    expected = torch.func.jvp(reference, tuple(point), tuple(tangents))
    torch.testing.assert_close((tuple(value), tuple(tangent)), expected)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        jacobian = transform(operator(), (0, 1))(*point)
        torch.testing.assert_close(tuple(jacobian), transform(reference, (0, 1))(*point))
    result, pullback = torch.func.vjp(operator(), *point)
    cotangents = tuple(torch.ones_like(part) for part in result)
    ours = pullback(type(result)(*cotangents))
    torch.testing.assert_close(ours, torch.func.vjp(reference, *point)[1](cotangents))


def test_compiled_functions():
    def loss(function, x, P):
        result = function(x, P)
        return result[0].sum() * result[1] + result[2].sum()

    op = operator()

    def by_name(x, P):
        result = op(x, P)
        return result.mean.sum() * result.energy + result.product.sum()

    inputs = tensors()
    compiled = torch.compile(by_name, fullgraph=True)(*inputs)
    torch.testing.assert_close(compiled, loss(reference, *inputs))
    ours = torch.autograd.grad(compiled, inputs)
    torch.testing.assert_close(ours, torch.autograd.grad(loss(reference, *inputs), inputs))


@pytest.mark.parametrize("batched", [False, True])
def test_samples(batched):
    x, P = tensors(requires_grad=False)
    stack = torch.stack([x, 2 * x, -x])
    values = torch.vmap(operator(batched), (0, None))(stack, P)
    assert values._fields == ("mean", "energy", "product")
    torch.testing.assert_close(tuple(values), torch.vmap(reference, (0, None))(stack, P))

    def pulled(function):
        def gradient(x):
            mean, energy, product = function(x, P)
            return mean.sum() * energy + product.sum()

        return torch.vmap(torch.func.grad(gradient))(stack)

    torch.testing.assert_close(pulled(operator(batched)), pulled(reference))


def test_batch_axes_are_one_call():
    x, P = tensors(requires_grad=False)
    stack = torch.stack([x, 2 * x]).reshape(2, 1, 3).requires_grad_()
    op = derivatrix.torch.operator(BY_SAMPLE)
    values = op(stack, P.requires_grad_())
    by_sample = [reference(sample, P) for sample in stack[:, 0]]
    expected = [torch.stack(parts)[:, None] for parts in zip(*by_sample, strict=True)]
    torch.testing.assert_close([*values], expected)
    ours = torch.autograd.grad(values.mean.sum(), [stack, P])
    torch.testing.assert_close(ours, torch.autograd.grad(expected[0].sum(), [stack, P]))


def test_results_are_written_to_out():
    x, P = tensors(requires_grad=False)
    out = tuple(torch.empty_like(part) for part in operator()(x, P))
    assert operator()(x, P, out=out) is out
    torch.testing.assert_close(out, reference(x, P))
    with pytest.raises(UnsupportedError, match="moments: has no derivatives with out="):
        operator()(x.requires_grad_(), P, out=out)


def test_a_single_named_output():
    function = dx.function("mean", [x, P], {"mean": P @ x})
    op, inputs = derivatrix.torch.operator(function), tensors()
    assert op(*inputs)._fields == ("mean",)
    assert gradcheck(op, inputs, check_forward_ad=True)
    out = (torch.empty(3, dtype=torch.float64),)
    with torch.no_grad():
        assert op(*inputs, out=out) is out
    torch.testing.assert_close(out[0], inputs[1] @ inputs[0])


def test_operators_are_pickled():
    assert pickle.loads(pickle.dumps(operator())) is operator()


def test_a_batched_module_has_the_same_outputs():
    names = dx.function("moments", [x, P], {"mean": P @ x, "power": P @ P}, batch=[x])
    with pytest.raises(DeclarationError, match="is not the same function"):
        derivatrix.torch.operator(FUNCTION, names)
