"""Results of the functions of a generated package at one point each: `called.py PACKAGE FILE`
writes them to the file, or compares them with it if it exists. The script stands alone, as
environments with a user's packages, and without tests, run it."""

import sys
from pathlib import Path

import numpy as np

from derivatrix.runtime import load_package, measure, sampling
from derivatrix.runtime.interface import ModuleInterface

KINDS = ("value", "vjp", "jvp")
TOLERANCE = 1e-8


def results(folder: str) -> dict[str, np.ndarray]:
    """The arrays, by module, function and result."""
    result = {}
    for name, module in load_package(folder).items():
        interface = ModuleInterface(module)
        sizes = sampling.assignments(interface, {})[0]
        point, _ = next(measure.defined(interface, sizes, np.random.default_rng(0)))
        for kind in KINDS:
            for key, array in interface.results(kind, point).items():
                result[" ".join([name, kind, *key])] = array
    return result


def main(folder: str, file: str) -> int:
    """1 if they differ."""
    actual = results(folder)
    if not Path(file).exists():
        np.savez(file, **actual)
        return 0
    expected = dict(np.load(file))
    wrong = sorted(actual.keys() ^ expected.keys())
    for name in actual.keys() & expected.keys():
        scale = np.abs(expected[name]).max(initial=1e-300)
        if not np.abs(actual[name] - expected[name]).max(initial=0) <= TOLERANCE * scale:
            wrong.append(name)
    print(*wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
