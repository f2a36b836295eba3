"""Time over size, a picture for each row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from tests.benchmarks.race import Outcome

PictureKey = tuple[str, str, int]


def pictures(outcomes: Sequence[Outcome], names: Sequence[str], path: Path) -> None:
    """One file with a picture for each row that has several sizes, by type and threads."""
    groups = list(_groups(outcomes))
    if not groups:
        return
    columns = min(3, len(groups))
    rows = math.ceil(len(groups) / columns)
    figure, axes = pyplot.subplots(
        rows, columns, figsize=(5.5 * columns, 3.8 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, (key, group) in zip(axes.flat, groups, strict=False):
        _draw(axis, key, group, names)
    handles = {
        text: handle
        for axis in axes.flat[: len(groups)]
        for handle, text in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=5)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _groups(outcomes: Sequence[Outcome]) -> Iterator[tuple[PictureKey, list[Outcome]]]:
    def key(outcome: Outcome) -> PictureKey:
        return outcome.row, outcome.dtype, outcome.threads

    for found, group in groupby(sorted(outcomes, key=key), key):
        members = list(group)
        if len(members) > 1:
            yield found, members


def _draw(axis: Axes, key: PictureKey, group: list[Outcome], names: Sequence[str]) -> None:
    varying = [name for name in group[0].sizes if len({o.sizes[name] for o in group}) > 1]
    group = sorted(group, key=lambda outcome: math.prod(outcome.sizes.values()))
    places = [outcome.sizes[varying[0]] for outcome in group]
    if len({*places}) < len(places):
        places = list(range(1, len(group) + 1))
    for position, name in enumerate(names):
        points = [
            (place, outcome.entries[name].least)
            for place, outcome in zip(places, group, strict=True)
            if name in outcome.entries and not outcome.entries[name].reason
        ]
        width = 2.4 if name == "derivatrix" else 1.2
        if points:
            axis.plot(
                *zip(*points, strict=True), "o-", color=f"C{position}", label=name, lw=width, ms=3
            )
    axis.plot(places, [outcome.floor for outcome in group], "k:", label="floor")
    row, dtype, threads = key
    axis.set(xscale="log", yscale="log", ylabel="seconds", xlabel=_axis_title(group, varying))
    axis.set_title(f"{row}, {dtype}, {threads} thread{'s' * (threads > 1)}", fontsize=10)
    axis.set_xticks(places, [_tick(outcome, varying) for outcome in group], fontsize=7)
    axis.minorticks_off()


def _axis_title(group: list[Outcome], varying: list[str]) -> str:
    constant = [name for name in group[0].sizes if name not in varying]
    text = " × ".join(varying)
    fixed = ", ".join(f"{name}={group[0].sizes[name]}" for name in constant)
    return f"{text} ({fixed})" if fixed else text


def _tick(outcome: Outcome, varying: list[str]) -> str:
    return "×".join(f"{outcome.sizes[name]:g}" for name in varying)
