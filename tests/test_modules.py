"""Every case as a generated module: verified, its formulas against its kernels, with batches,
structures, float32, awkward arguments; and its text the same in every process."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from derivatrix.compiler.evaluate import evaluate
from derivatrix.compiler.function import Function
from derivatrix.compiler.pipeline import STAGES, dump, generate
from derivatrix.runtime import load, verify
from derivatrix.runtime.errors import DeclarationError, UnsupportedError
from tests.cases import CASES
from tests.points import SIZES, draw_all

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_module(case: Function, tmp_path: Path) -> None:
    path = tmp_path / f"{case.name}.py"
    path.write_text(generate(case).text, encoding="utf-8")
    module = load(path)
    report = verify(module)
    assert report.passed, str(report)
    compare_with_the_interpreter(case, module)


def compare_with_the_interpreter(case: Function, module: ModuleType) -> None:
    """Each kernel's numbers against the closed form, evaluated node by node with NumPy."""
    values = draw_all(case)
    for kind in module.FUNCTIONS:
        names = [leaf.name for leaf in case.derivatives.arguments(kind)]
        actual = flat(getattr(module, kind)(*(values[name] for name in names)))
        nodes = case.derivatives.batched(kind).values()
        for array, node in zip(actual, nodes, strict=True):
            expected = evaluate(node, values, SIZES)
            scale = max(1.0, float(np.abs(expected).max(initial=0)))
            assert array.shape == expected.shape
            np.testing.assert_allclose(array, expected, rtol=0, atol=1e-10 * scale)


def flat(result: object) -> list[np.ndarray]:
    if isinstance(result, tuple):
        return [array for part in result for array in flat(part)]
    return [np.asarray(result)]


@pytest.mark.parametrize("name", ["square", "nll", "classifier", "entries", "sylvester"])
def test_text_is_the_same_in_every_process(name: str) -> None:
    program = (
        "import sys; from tests.cases import CASES; from derivatrix.compiler.pipeline import "
        "generate; case = next(c for c in CASES if c.name == sys.argv[1]); "
        "sys.stdout.buffer.write(generate(case).text.encode())"
    )
    texts = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", program, name],
            env=environment,
            capture_output=True,
            check=True,
            cwd=ROOT,
        )
        texts.add(done.stdout)
    assert len(texts) == 1
    assert str(ROOT).encode() not in texts.pop()


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_can_be_shown(stage: str) -> None:
    text = dump(CASES[0], stage)
    assert text.strip()
    assert text == dump(CASES[0], stage)


def test_unknown_stage_and_target() -> None:
    with pytest.raises(DeclarationError, match="stage"):
        dump(CASES[0], "dream")
    with pytest.raises(UnsupportedError, match="target"):
        generate(CASES[0], target="abacus")
