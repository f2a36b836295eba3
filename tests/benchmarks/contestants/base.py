"""The interface of a contestant, and the derivatives that JAX and PyTorch name alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from tests.benchmarks.record import Program, Row, flat
from tests.benchmarks.timing import at_once

Call = Callable[[], Any]


class Candidate(NamedTuple):
    """One way to compute a derivative: `make()` traces and converts, and returns the call to time,
    which takes nothing and returns what the contestant returns, finished."""

    variant: str
    make: Callable[[], Call]


class Unable(Exception):
    """Why a contestant has no way to do a row."""


class Contestant(ABC):
    """A package that computes derivatives, set up for a number of threads."""

    name: str
    version: str
    slow = False
    """Whether it compiles so long that only the best variant at a row's first size is tried at
    other sizes."""
    library: SimpleNamespace
    """The functions that the rows' programs use, in this package's words."""

    @abstractmethod
    def candidates(self, row: Row, arguments: Sequence[np.ndarray]) -> list[Candidate]:
        """The ways a user who knows the package would try; the fastest counts. Raises Unable."""

    def arrays(self, result: Any) -> list[np.ndarray]:
        """Return the arrays of a call's result as a flat list."""
        return flat(result)

    def finish(self) -> None:
        """Wait until calls are done that return before they are."""
        at_once()

    def notes(self) -> Mapping[str, float]:
        """Seconds of the stages of the last `make`, where the package can tell them."""
        return {}

    def programs(self, row: Row, package: str) -> list[tuple[str, Program]]:
        """The ways to write the row's function in this package's words, with what to add to a
        variant's name. Raises Unable."""
        reason = row.without.get(package)
        if reason:
            raise Unable(reason)
        written = (row.program, *row.programs)
        suffixes = ("", *(f", way {number}" for number in range(2, len(written) + 1)))
        bound = [partial(program, self.library) for program in written]
        return list(zip(suffixes, bound, strict=True))


class Transforms(NamedTuple):
    """Function transformations with the signatures that JAX and torch.func share."""

    grad: Callable[..., Any]
    vjp: Callable[..., Any]
    jacrev: Callable[..., Any]
    jacfwd: Callable[..., Any]
    vmap: Callable[..., Any]
    solve: Callable[..., Any]

    def derivatives(self, row: Row, program: Program) -> dict[str, Program]:
        """The row's derivative as functions of its inputs (and cotangent), by variant."""
        if row.kind == "vjp":
            return {"vjp": self._vjp(row, program)}
        wrt = row.wrt if len(row.wrt) > 1 else row.wrt[0]
        gradient = self.grad(program, wrt)
        match row.kind:
            case "gradient":
                result = {"grad": gradient}
            case "jacobian":
                result = {"jacrev": self.jacrev(program, wrt), "jacfwd": self.jacfwd(program, wrt)}
            case "hessian":
                result = {
                    "jacfwd of grad": self.jacfwd(gradient, wrt),
                    "jacrev of grad": self.jacrev(gradient, wrt),
                }
            case "newton":
                hessian = self.jacfwd(gradient, wrt)
                result = {"newton": lambda *x: self.solve(hessian(*x), gradient(*x))}
            case _:
                raise ValueError(f"{row.name}: there is no kind {row.kind!r}")
        return {variant: self._mapped(row, derivative) for variant, derivative in result.items()}

    def _vjp(self, row: Row, program: Program) -> Program:
        function = self._mapped(row, program)

        def derivative(*arguments: Any) -> Any:
            *inputs, cotangent = arguments

            def of_wrt(*chosen: Any) -> Any:
                whole = dict(enumerate(inputs)) | dict(zip(row.wrt, chosen, strict=True))
                return function(*(whole[position] for position in range(len(inputs))))

            return self.vjp(of_wrt, *(inputs[position] for position in row.wrt))[1](cotangent)

        return derivative

    def _mapped(self, row: Row, function: Program) -> Program:
        if not any(row.batched):
            return function
        return self.vmap(function, tuple(0 if batched else None for batched in row.batched))
