"""Operators of PyTorch: arguments, results, refused arguments, devices."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

import derivatrix as dx
import derivatrix.torch
from derivatrix.runtime.errors import DeclarationError, LoadError, ShapeError, UnsupportedError
from tests.adapters.torch.cases import FUNCTIONS, generated, operator, tensors
from tests.adapters.torch.test_derivatives import spoilt
from tests.pages import run_page


def matrix(*shape, dtype=torch.float64, **options):
    values = np.random.default_rng(2).normal(size=shape)
    return torch.tensor(values, dtype=dtype, **options)


def test_the_same_function_gives_the_same_operator():
    module = generated("square")
    op = derivatrix.torch.operator(module)
    assert op is operator("square") and isinstance(op, torch.library.CustomOpDef)
    other = derivatrix.torch.operator(spoilt(module, "value"))
    assert other is not op and repr(other) != repr(op)


def test_values_are_those_of_the_module_and_names_are_its_inputs():
    op, x = operator("square"), matrix(3, 3)
    np.testing.assert_array_equal(op(X=x).numpy(), generated("square").value(x.numpy()))
    value = operator("affine")(torch.tensor(2.0), y=torch.ones(3))
    assert value.dtype == torch.float32 and value.tolist() == pytest.approx([4 + 2 / 3] * 3)


@pytest.mark.parametrize(
    "strided",
    [
        lambda x: x.T,
        lambda x: x.repeat(2, 2)[::2, 1::2],
        lambda x: x[:1].expand(4, 4),
        lambda x: torch.complex(x, x).conj().imag,  # negated when it is read
    ],
)
def test_tensors_that_are_not_contiguous(strided):
    op, x = operator("square"), matrix(4, 4, requires_grad=True)
    given = strided(x)
    assert not given.is_contiguous() or given.is_neg()
    actual, expected = op(given), given @ given
    torch.testing.assert_close(actual, expected)
    cotangent = matrix(4, 4).T
    (ours,) = torch.autograd.grad(actual, x, cotangent, retain_graph=True)
    torch.testing.assert_close(ours, torch.autograd.grad(expected, x, cotangent)[0])


def test_no_copies_are_made(monkeypatch):
    op, module = operator("square"), generated("square")
    seen, value = [], module.value
    monkeypatch.setattr(module, "value", lambda X, **out: seen.append(X) or value(X, **out))
    x = matrix(3, 3)
    op(x)
    assert np.shares_memory(seen[0], x.numpy())


def test_only_what_is_needed_is_computed(monkeypatch):
    module = generated("order")  # wrt=[B, A]
    op, calls, vjp = operator("order"), [], module.vjp
    monkeypatch.setattr(module, "vjp", lambda *given: calls.append(given) or vjp(*given))
    first, second, third = (matrix(3, 2), matrix(2, 2), matrix(2, 3))
    assert not op(first, second, third).requires_grad
    op(first, second, third.requires_grad_()).backward()
    assert len(calls) == 1 and first.grad is None
    expected = vjp(first.numpy(), second.numpy(), third.detach().numpy(), 1.0)
    np.testing.assert_allclose(third.grad.numpy(), expected.B)
    op(first, second.requires_grad_(), third.detach()).backward()
    assert len(calls) == 1 and second.grad is None  # C is not in wrt: it gets no gradient


def test_a_tangent_of_an_input_that_is_not_in_wrt_is_refused():
    given = matrix(3, 2), matrix(2, 2), matrix(2, 3)
    with pytest.raises(UnsupportedError, match="order: argument C has a tangent, and no derivati"):
        torch.func.jvp(operator("order"), given, given)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_results_are_written_to_out(dtype):
    op, x, out = operator("square"), matrix(3, 3, dtype=dtype), torch.empty(3, 3, dtype=dtype)
    assert op(x, out=out) is out
    torch.testing.assert_close(out, x @ x)
    compiled = torch.compile(lambda x, out: op(x, out=out) + 1, fullgraph=True)
    torch.testing.assert_close(compiled(2 * x, torch.empty_like(x)), 4 * x @ x + 1)
    trace = torch.empty((), dtype=dtype)
    assert operator("energy")(x, out=trace) is trace
    torch.testing.assert_close(trace, torch.trace((x @ x).T @ (x @ x)))
    with pytest.raises(ValueError, match=r"square: out has shape \(2, 2\); expected \(3, 3\)"):
        op(x, out=torch.empty(2, 2, dtype=dtype))
    with pytest.raises(UnsupportedError, match="square: has no derivatives with out="):
        op(x.requires_grad_(), out=out)


# torch.func and torch.compile


def reference(X):
    return torch.trace((X @ X).T @ (X @ X))


@pytest.mark.parametrize("outer", [torch.func.jacfwd, torch.func.jacrev])
@pytest.mark.parametrize("inner", [torch.func.jacfwd, torch.func.jacrev])
def test_second_derivatives_by_all_modes(outer, inner):
    """PyTorch loses the outer derivative of an autograd.Function's jvp."""
    x = matrix(3, 3)
    actual = outer(inner(operator("energy")))(x)
    torch.testing.assert_close(actual, torch.func.hessian(reference)(x))


def test_functions_of_torch_func():
    op, x, tangent = operator("square"), matrix(3, 3), matrix(3, 3).T
    expected = torch.from_numpy(generated("square").jacobian(x.numpy()))
    torch.testing.assert_close(torch.func.jacrev(op)(x), expected)
    torch.testing.assert_close(torch.func.jacfwd(op)(x), expected)
    torch.testing.assert_close(torch.func.jvp(op, (x,), (tangent,))[1], x @ tangent + tangent @ x)
    gradients = torch.vmap(torch.func.grad(operator("energy")))(torch.stack([x, 2 * x]))
    torch.testing.assert_close(gradients[1], 8 * torch.func.grad(reference)(x))
    assert torch.vmap(op)(matrix(0, 3, 3)).shape == (0, 3, 3)


@pytest.mark.parametrize(
    "transformed",
    [
        lambda op: torch.func.hessian(op),
        lambda op: torch.func.jacrev(torch.func.jacfwd(op)),
        lambda op: torch.vmap(torch.func.grad(lambda row: op(torch.outer(row, row)))),
    ],
)
def test_functions_of_torch_func_compiled(transformed):
    x = matrix(3, 3)
    actual = torch.compile(transformed(operator("energy")), fullgraph=True)(x)
    torch.testing.assert_close(actual, transformed(reference)(x))


def test_a_function_without_second_derivatives_has_them_by_cotangents_and_directions():
    x, v = matrix(3, 3), matrix(3, 3).T
    _, moved = torch.autograd.functional.jvp(operator("square"), x, v)
    torch.testing.assert_close(moved, x @ v + v @ x)
    _, product = torch.autograd.functional.hvp(operator("energy"), x, v)
    expected = generated("energy").hvp(x.numpy(), v.numpy())
    np.testing.assert_allclose(product.numpy(), expected)


def test_a_batched_module_is_called_once_for_all_samples(monkeypatch):
    op = derivatrix.torch.operator(generated("order"), batched=generated("orders"))
    single, batched = generated("order"), generated("orders")
    monkeypatch.setattr(single, "value", None)
    first, second, third = matrix(5, 3, 2), matrix(2, 2), matrix(2, 3)
    gradient = torch.func.grad_and_value(op, argnums=(0, 2))
    (by_first, by_third), value = torch.vmap(gradient, (0, None, None))(first, second, third)
    stacked = (first.numpy(), second.numpy(), third.expand(5, 2, 3).numpy())
    np.testing.assert_allclose(value.numpy(), batched.value(*stacked))
    expected = batched.vjp(*stacked, np.ones(5))
    np.testing.assert_allclose(by_first.numpy(), expected.A)
    np.testing.assert_allclose(by_third.numpy(), expected.B)
    monkeypatch.undo()
    many = torch.vmap(op, (None, 2, None))(first[0], second[..., None].expand(2, 2, 4), third)
    torch.testing.assert_close(many, op(first[0], second, third).expand(4))


def test_another_function_is_no_batched_module():
    with pytest.raises(DeclarationError, match="stack given as batched= is not the same"):
        derivatrix.torch.operator(generated("order"), batched=generated("stack"))


@pytest.mark.parametrize("name", ["energy", "product", "stack"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_compiled_whole(name, dtype):
    op = operator(name)

    def function(*given):
        return torch.sin(op(*given)).sum()

    given = tensors(op, dtype)
    needed = [tensor for tensor in given if tensor.requires_grad]
    ours, expected = torch.compile(function, fullgraph=True)(*given), function(*given)
    torch.testing.assert_close(ours, expected)
    pairs = zip(*(torch.autograd.grad(result, needed) for result in (ours, expected)), strict=True)
    for found, gradient in pairs:
        torch.testing.assert_close(found, gradient)


@pytest.mark.parametrize("name", ["square", "classifier"])
def test_sizes_stay_symbols_when_compiled(name):
    counter, op = CompileCounter(), operator(name)
    compiled = torch.compile(op, backend=counter, fullgraph=True, dynamic=True)
    rest = [] if name == "square" else [matrix(4, 3), matrix(4)]
    for size in (6, 7, 8):
        arguments = [matrix(size, size if name == "square" else 3), *rest]
        torch.testing.assert_close(compiled(*arguments), op(*arguments))
    assert counter.frame_count == 1


# What is refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (torch.Tensor.int, r"is a tensor of torch.int32; expected torch.float64 or torch.float32"),
        (lambda x: x.to(torch.complex128), "is a tensor of torch.complex128; expected torch.fl"),
        (torch.Tensor.bfloat16, "is a tensor of torch.bfloat16; expected"),
        (torch.Tensor.to_sparse, "is a tensor of torch.sparse_coo; expected torch.strided"),
    ],
)
def test_other_tensors_are_refused_by_name(change, said):
    with pytest.raises(UnsupportedError, match=f"product: argument b {said}"):
        operator("product")(matrix(3), change(matrix(3)))


def test_tensors_elsewhere_are_refused_and_those_of_the_device_are_not():
    module = generated("square")
    for_device = spoilt(module, "value")
    for_device.TARGET = "cuda"
    there = derivatrix.torch.operator(for_device)
    with torch._subclasses.FakeTensorMode():
        x = torch.empty(3, 3, device="cuda")
        assert there(x).device.type == "cuda"
        with pytest.raises(
            UnsupportedError, match="argument X is a tensor on cuda:0; expected one"
        ):
            operator("square")(x)
    with pytest.raises(
        UnsupportedError, match="argument X is a tensor on cpu; expected one on cud"
    ):
        there(matrix(3, 3))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"square: argument X has shape \(3, 2\)"):
        operator("square")(matrix(3, 2))
    with pytest.raises(ShapeError, match=r"square: argument X has shape \(3, 2\); expected \(n, n"):
        operator("square")(torch.empty(3, 2, device="meta"))
    assert operator("square")(torch.empty(3, 3, device="meta")).shape == (3, 3)


@pytest.mark.filterwarnings("ignore:Backwards compatibility")
def test_numbers_are_taken_as_the_module_takes_them():
    op, module = operator("affine"), generated("affine")
    vector = matrix(1, 3)[0]
    for value in (2, 2.5, True, np.float32(1.5), np.int64(3)):
        expected = module.value(value, vector.numpy())
        for found in (op(value, vector), op(y=vector, s=value)):
            np.testing.assert_array_equal(found, expected)
        assert op(value, vector.float()).dtype == torch.float32
    assert operator("numbers")(2, 3).item() == generated("numbers").value(2, 3)
    compiled = torch.compile(lambda y: op(2.5, y), fullgraph=True, backend="aot_eager")
    np.testing.assert_array_equal(compiled(vector), module.value(2.5, vector.numpy()))


@pytest.mark.parametrize("name", ["σ", "self", "inputs"])
def test_inputs_have_any_name_of_the_declaration(name):
    number, y = dx.scalar(name), dx.vector("y", 3)
    op = derivatrix.torch.operator(dx.function("scaled", [number, y], number * y))
    result = op(**{name: 2.0, "y": torch.ones(3, dtype=torch.float64)})
    assert result.tolist() == [2, 2, 2]


# Other processes


def test_operators_are_pickled_by_their_module():
    op = operator("square")
    assert pickle.loads(pickle.dumps(op)) is op and copy.deepcopy(op) is op
    stacked = derivatrix.torch.operator(generated("order"), batched=generated("orders"))
    assert pickle.loads(pickle.dumps(stacked)) is stacked
    remake, ((name, file, _), batched) = op.__reduce__()
    with pytest.raises(LoadError, match="is of another build than the operator that was pickled"):
        remake((name, file, "0"), batched)


MODEL = """
import torch
import derivatrix.torch
from generated import square

class Squared(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.square = derivatrix.torch.operator(square)

    def forward(self, x):
        return self.square(self.linear(x)).sum()
"""


def test_a_module_of_torch_is_saved_and_loaded_elsewhere(tmp_path):
    dx.build([FUNCTIONS["square"]], tmp_path / "generated", verify=False)
    (tmp_path / "model.py").write_text(MODEL)
    save = (
        "import torch, model; m = model.Squared(); x = torch.ones(3, 3); "
        "torch.save([m, m(x).item()], 'whole.pt'); torch.save(m.state_dict(), 'state.pt')"
    )
    load = (
        "import torch; m, value = torch.load('whole.pt', weights_only=False); x = torch.ones(3, 3);"
        "assert m(x).item() == value; m(x).backward(); assert m.linear.weight.grad.any(); "
        "import model; other = model.Squared(); other.load_state_dict(torch.load('state.pt')); "
        "assert other(x).item() == value"
    )
    for code in (save, load):
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_the_page_is_right():
    run_page("torch")
