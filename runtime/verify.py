"""Verification of a generated module by its own public functions, without the compiler.

What the module returns is compared with an independent NumPy evaluation of the declaration, at
points inside every input's domain and along directions that keep its structure; five-point
central differences are the judge of every derivative.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from derivatrix.runtime import reach, simulated, trials
from derivatrix.runtime.interface import ModuleInterface
from derivatrix.runtime.load import load
from derivatrix.runtime.reference import BrokenText, OutOfDomain
from derivatrix.runtime.report import MODULE, Curve, Reach, Report, Row

ADVICE = (
    'give the inputs a structure or domain where the function is defined ("positive", "spd", '
    '"invertible", ...), or pass sizes that fit'
)


def verify(
    module: ModuleType,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    thorough: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Check every public function of a generated module, and report.

    The checks: the value against the declaration; each derivative against differences, and that
    one off by 1e-4 would be noticed (`control`); the adjoint identity; Jacobian and Hessian
    against their products; the Hessian's symmetry; projection on the inputs' structures; a
    second run, `out=`, unusual arguments, kernels called directly and float32; the Jacobian or
    Hessian as operators; and the formulas' NumPy texts.

    sizes: sizes of dimensions by name, where the small ones chosen otherwise do not suit.
    seed: of the random points; the same seed gives the same points.
    thorough: whether to compare at many more points with the declaration and its differences in 50
    digits, where all that it calls is known in them; the report says where it is not.
    progress: called with a line of text for each point.
    A module for CUDA devices is verified on the device, and where there is none in Numba's
    simulator, at small sizes; the report says so (`place`).
    Raises LoadError when the module is not a generated one, ShapeError for sizes that it lacks,
    MissingPackageError where it is for CUDA devices and what it needs is not installed.
    """
    interface = ModuleInterface(module)
    if interface.target == "cuda":
        simulated.require_numba_cuda(interface.name)
    if simulated.needs_simulation(module):
        return simulated.verify_simulated(module, sizes or {}, seed, thorough)
    place = simulated.PLACE if interface.target == "cuda" and simulated.simulating() else ""
    rows = [_functions(interface)]
    curves: list[Curve] = []
    reached = Reach(note=trials.SMALL_ONLY if interface.target == "cuda" else "")

    def add(found: trials.Rows) -> None:
        if progress is not None:
            progress(f"{interface.name}: {found.label}")
        rows.extend(found.rows)
        curves.extend(found.curves)

    with warnings.catch_warnings(), simulated.as_on_device(module):
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            for found in trials.small(interface, sizes or {}, seed, bool(place)):
                add(found)
            for found in trials.thorough(interface, sizes or {}, seed) if thorough else ():
                add(found)
            if not sizes and interface.target == "cpu":
                if all(row.passed for row in rows):
                    runs, reached = reach.survey(interface)
                    for run in runs:
                        for found in trials.large(interface, run, seed):
                            add(found)
                else:
                    reached = Reach(note="small sizes fail: larger ones were not tried")
        except BrokenText as error:
            rows.append(_failure("declaration", str(error)))
        except OutOfDomain as error:
            note = f"no point was found where the declaration has a value ({error}); {ADVICE}"
            rows.append(_failure("point", note))
    return Report(interface.name, module.DIGEST, tuple(rows), place, reached, tuple(curves))


def _functions(interface: ModuleInterface) -> Row:
    """The row that says whether the module has and lists the functions it should."""
    module, listed = interface.module, tuple(interface.module.FUNCTIONS)
    there = [k for k in interface.possible_kinds if callable(getattr(module, k, None))]
    absent = [kind for kind in ("value", *interface.kinds) if kind not in there]
    note = f"it has no {', '.join(dict.fromkeys(absent))}" if absent else ""
    if not absent and set(listed) != set(there):
        note = f"FUNCTIONS is {listed}, expected {tuple(there)}"
    return Row("functions", MODULE, "", "", 0.0, 0.0, not note, note)


def _failure(check: str, note: str) -> Row:
    return Row(check, MODULE, "", "", np.inf, 0.0, False, note)


def verified(argument: Mapping[str, Any]) -> dict[str, Any]:
    """The report of a module for devices as plain data; a process that simulates one runs this."""
    module = load(Path(argument["path"]))
    return verify(module, **argument["options"]).to_dict()
