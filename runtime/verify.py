"""Verification of a generated module by its own public functions, without the compiler.

Values are compared with an independent NumPy evaluation of the declaration, derivatives with
five-point central differences of it, at points inside every input's domain and along directions
that keep its structure.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from derivatrix.runtime import reach, simulated, trials
from derivatrix.runtime.interface import ModuleInterface, interfaces
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
    an error of 1e-4 would be noticed (`control`); the adjoint identity; Jacobian and Hessian
    against their products; the Hessian's symmetry; projection on the inputs' structures; a
    second run, `out=`, unusual arguments, kernels called directly and float32; the Jacobian or
    Hessian as operators; and the formulas' NumPy texts.

    sizes: sizes of dimensions by name, in place of the small ones chosen by default.
    seed: seed of the random points.
    thorough: compare at many more points with the declaration and its differences in 50 digits;
    the report names a function that has no implementation with so many digits.
    progress: called with a line of text for each point.
    A module for CUDA devices is verified on the device, or without one in Numba's simulator, at
    small sizes; the report says so (`place`).
    Raises LoadError if the module is not a generated one, ShapeError for sizes that it does not
    have, MissingPackageError if it is for CUDA devices and numba-cuda or CuPy is not installed.
    """
    interface, *others = interfaces(module)
    if interface.target == "cuda":
        simulated.require_numba_cuda(interface.name)
    items = (sizes or {}).items()
    fixed = {name: int(size) if isinstance(size, np.integer) else size for name, size in items}
    if simulated.needs_simulation(module):
        return simulated.verify_simulated(module, fixed, seed, thorough)
    place = simulated.PLACE if interface.target == "cuda" and simulated.simulating() else ""
    rows = [_check_function_list(interface)]
    curves: list[Curve] = []
    reached = Reach(note=trials.SMALL_ONLY if interface.target == "cuda" else "")

    def add(results: Iterable[trials.PointResult], output_name: str = "") -> bool:
        of_output = f" of {output_name}" if output_name else ""
        has_results = False
        for result in results:
            has_results = True
            if progress is not None:
                progress(f"{interface.name}{of_output}: {result.label}")
            for row in result.rows:
                is_of_module = row.function == MODULE or not of_output
                rows.append(
                    row if is_of_module else replace(row, function=row.function + of_output)
                )
            curves.extend(
                replace(curve, function=curve.function + of_output) for curve in result.curves
            )
        return has_results

    def make(run: reach.Run) -> bool:
        """Check the outputs at the sizes of a run; return whether all have a value there."""
        outputs = (interface, *others)
        checked = [add(trials.large(o, run, seed), o.output_name) for o in outputs]
        return all(checked)

    with warnings.catch_warnings(), simulated.as_on_device(module):
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            for output in (interface, *others):
                name = output.output_name
                add(trials.small(output, fixed, seed, bool(place)), name)
                if thorough:
                    add(trials.thorough(output, fixed, seed), name)
            if others and "vjp" in interface.kinds:
                add([trials.all_cotangents(interface, fixed, seed)])
            if not fixed and interface.target == "cpu":
                if all(row.passed for row in rows):
                    _, reached = reach.choose_runs(interface, make)
                else:
                    reached = Reach(note="small sizes fail: larger ones were not tried")
        except BrokenText as error:
            rows.append(Row.failure("declaration", MODULE, str(error)))
        except OutOfDomain as error:
            note = f"no point was found where the declaration has a value ({error}); {ADVICE}"
            rows.append(Row.failure("point", MODULE, note))
    return Report(interface.name, module.DIGEST, tuple(rows), place, reached, tuple(curves))


def _check_function_list(interface: ModuleInterface) -> Row:
    """Check that the module has the functions it should have, and that FUNCTIONS lists these."""
    module, listed = interface.module, tuple(interface.module.FUNCTIONS)
    present = [k for k in interface.possible_kinds if callable(getattr(module, k, None))]
    missing = [kind for kind in ("value", *interface.kinds) if kind not in present]
    note = f"it has no {', '.join(dict.fromkeys(missing))}" if missing else ""
    if not missing and set(listed) != set(present):
        note = f"FUNCTIONS is {listed}, expected {tuple(present)}"
    return Row("functions", MODULE, "", "", 0.0, 0.0, not note, note)


def verify_in_simulator(argument: Mapping[str, Any]) -> dict[str, Any]:
    """Verify the module at `path`, and return the report as plain data: the task of the process in
    which CUDA is simulated."""
    module = load(Path(argument["path"]))
    return verify(module, **argument["options"]).to_dict()
