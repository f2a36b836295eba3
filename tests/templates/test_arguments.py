"""Arguments other than NumPy's arrays that public functions accept or refuse."""

import numpy as np
import pytest

import derivatrix as dx

n = dx.dims("n")
a, s = dx.vector("a", n), dx.scalar("s")
ONES = np.ones(3)


class ThroughDLPack:
    """An array of another package, on another device if it is not 1."""

    def __init__(self, array, device=1):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        if self.device != 1:
            raise BufferError("the memory of a device")
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device, 0


class ThroughArray:
    """One that knows `__array__`, and has a method called `mask`, as pandas' have."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype)

    def mask(self):
        raise NotImplementedError


@pytest.fixture(scope="module")
def module():
    return dx.compile(dx.function("scaled", [a, s], s * a))


@pytest.mark.parametrize("kind", [ThroughDLPack, ThroughArray])
def test_arrays_of_other_packages_are_taken(module, kind):
    for real in ("float64", "float32", "int64"):
        array = np.arange(3, dtype=real)
        for given in (array, array[::-1], np.broadcast_to(array[1], 3)):
            result = module.value(kind(given), kind(np.array(2, dtype=real)))
            assert type(result) is np.ndarray
            assert result.dtype == ("float32" if real == "float32" else "float64")
            np.testing.assert_array_equal(result, 2.0 * given)
    np.testing.assert_array_equal(module.vjp(kind(ONES), 2.0, kind(ONES)).a, 2 * ONES)


def test_arrays_that_numpy_cannot_read_are_named(module):
    with pytest.raises(TypeError, match="scaled: argument a is ThroughDLPack, which NumPy cannot"):
        module.value(ThroughDLPack(ONES, 2), 1.0)
    with pytest.raises(TypeError, match="argument a is ThroughDLPack; expected real numbers"):
        module.value(ThroughDLPack(1j * ONES), 1.0)


def test_masked_arrays_are_refused_with_a_reason(module):
    masked = np.ma.array(ONES, mask=[0, 1, 0])
    for given in (masked, [1.0, np.ma.masked, 1.0]):
        with pytest.raises(TypeError, match=r"argument a is .*fill the masked entries, as"):
            module.value(given, 1.0)
    with pytest.raises(TypeError, match=r"argument cotangent is MaskedArray .*np\.ma\.filled"):
        module.vjp(ONES, 1.0, masked)
    np.testing.assert_array_equal(module.value(np.ma.filled(masked, 0.0), 1.0), [1.0, 0.0, 1.0])


def test_a_stack_where_there_is_no_batch_is_told_of_batch(module):
    hint = r"a has shape \(5, 3\); expected \(n,\); a stack .* declared with batch=\[a\]"
    with pytest.raises(ValueError, match=hint):
        module.value(np.ones((5, 3)), 1.0)
    with pytest.raises(ValueError, match=r"s has shape \(4,\); expected \(\); .*batch=\[s\]"):
        module.value(ONES, np.ones(4))
    for shape in ((2, 5, 3), ()):
        with pytest.raises(ValueError, match=r"expected \(n,\)$"):
            module.value(np.ones(shape), 1.0)
    batched = dx.compile(dx.function("scaled", [a, s], s * a, batch=[a]))
    with pytest.raises(ValueError, match=r"a has shape \(\); expected \(\*batch, n\)$"):
        batched.value(1.0, 1.0)
