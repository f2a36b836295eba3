"""A program that compiles functions in its session: `python -m tests.campaign.builds.compiled FILE`
prints of each the declaration, the formulas and the value at zeros, as JSON."""

from __future__ import annotations

import json
import sys

import derivatrix as dx
from derivatrix.compiler.frontends.function_file import load_functions
from tests.campaign.builds.judge import facts

if __name__ == "__main__":
    functions = load_functions(sys.argv[1])
    print(json.dumps({function.name: facts(dx.compile(function), True) for function in functions}))
