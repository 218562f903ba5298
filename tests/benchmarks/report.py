"""Samples of several tools to one Markdown table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from tests.benchmarks.measure import Sample

COST = ("seconds (least to most)", "CPU s", "peak MB")
_PHASES = ("before_s", "data_s", "after_s")


def table(samples: Mapping[str, Sequence[Sample | str]], reference: str) -> str:
    """One row a tool; the last two columns are `reference` divided by the tool."""
    head = ["", *COST, "written MB", "ours / it: time", "CPU"]
    rows = []
    for name, runs in samples.items():
        written = [run.written for run in made(runs)]
        rows.append(
            [
                name,
                *cost(runs),
                f"{median(written) / 1e6:.0f}" if written else "",
                *(["", ""] if name == reference else ratio(samples[reference], runs)),
            ]
        )
    return markdown(head, rows)


def made(runs: Sequence[Sample | str]) -> list[Sample]:
    """The runs that were made."""
    return [run for run in runs if isinstance(run, Sample)]


def cost(runs: Sequence[Sample | str]) -> list[str]:
    """Medians of time, CPU and memory; without a run, why there is none."""
    costs = [run.cost for run in made(runs)]
    if not costs:
        return [*(str(run) for run in runs[-1:]), "", ""]
    return [
        spread([one.seconds for one in costs]),
        f"{median(one.cpu_s for one in costs):.2f}",
        f"{median(one.peak_bytes for one in costs) / 1e6:.0f}",
    ]


def ratio(runs: Sequence[Sample | str], others: Sequence[Sample | str]) -> list[str]:
    """Time and CPU of runs divided by those of others, round by round, then the median."""
    pairs = [
        (one.cost, other.cost)
        for one, other in zip(runs, others, strict=True)
        if isinstance(one, Sample) and isinstance(other, Sample)
    ]
    if not pairs:
        return ["", ""]
    time = median(one.seconds / other.seconds for one, other in pairs)
    return [f"{time:.2f}", f"{median(one.cpu_s / other.cpu_s for one, other in pairs):.2f}"]


def phases(runs: Sequence[Sample | str]) -> str:
    """One line: the median of each phase that a warm session reported."""
    said = [run.said for run in made(runs) if _PHASES[0] in run.said]
    if not said:
        return ""
    parts = [f"{name.removesuffix('_s')} {median(one[name] for one in said):.2f} s" for name in _PHASES]
    return f"Where the warm run's time goes (medians): {', '.join(parts)}."


def spread(values: Sequence[float]) -> str:
    """Median, and from the least to the most."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with aligned columns."""
    lines = [head, ["---"] * len(head), *rows]
    widths = [max(len(row[column]) for row in lines) for column in range(len(head))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in lines
    )
