"""Arguments with a declared structure, of which kernels read the nearest array that has it."""

from __future__ import annotations

from derivatrix.compiler.plan.steps import LoopNest, Plan
from derivatrix.compiler.plan.visit import buffers

NEAREST = {
    "symmetric": "nearest_symmetric",
    "spd": "nearest_symmetric",
    "lower": "nearest_lower",
    "upper": "nearest_upper",
    "diagonal": "nearest_diagonal",
}
"""The function of `templates/support` that computes the nearest array, for each structure whose
matrices are a linear space (but for the definiteness of "spd")."""


def structured_arguments(plan: Plan) -> dict[str, str]:
    """Map the local names of the structured arguments that a plan's steps read to the functions of
    the nearest arrays. Arguments that are passed on to other kernels are left out, as are those of
    straight-line code, which computes the entries of the nearest array itself."""
    steps = [step for step in plan.steps if not (isinstance(step, LoopNest) and step.straight)]
    buffer_names = {buffer.name for buffer in buffers(steps)}
    return {
        argument.local: NEAREST[argument.structure]
        for argument in plan.arguments
        if argument.structure in NEAREST and argument.local in buffer_names
    }
