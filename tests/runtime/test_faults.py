"""A fixed sample of planted faults; `python -m tests.faults` tries them all."""

import pytest

import derivatrix as dx
from derivatrix.runtime.interface import ModuleInterface
from tests import faults

SAMPLE = (
    ("square", "vjp"),
    ("product", "jacobian"),
)


@pytest.mark.parametrize(("name", "kind"), SAMPLE)
def test_every_class_of_faults_is_caught(name, kind):
    (function,) = [function for function in faults.functions() if function.name == name]
    module = dx.compile(function)
    tried = dict(faults.faults(ModuleInterface(module)))
    missed = [label for label, fault in tried.items() if not faults.caught(module, kind, fault)]
    assert len(tried) > 14 and not missed
