"""Samples of several tools to one Markdown table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from tests.benchmarks.measure import Cost


@dataclass(frozen=True)
class Sample:
    """One run of one tool. `written` is what it left on disk, in bytes; `phases` is seconds by name."""

    cost: Cost
    written: int
    phases: Mapping[str, float]


def table(
    samples: Mapping[str, Sequence[Sample | None]], reference: str, failed: Collection[str] = ()
) -> str:
    """One row a tool. None stands for a run that was not made, or whose tool is among `failed`.

    The last two columns are `reference` divided by the tool, run by run, then the median:
    below 1 the reference is faster or cheaper.
    """
    head = ["", "seconds (least to most)", "CPU s", "peak MB", "written MB", "ours / it: time", "CPU"]
    rows = []
    for name, runs in samples.items():
        made = [run for run in runs if run is not None]
        if not made:
            rows.append([name, "failed" if name in failed else "not run", *[""] * (len(head) - 2)])
            continue
        pairs = [
            (mine.cost, its.cost) for mine, its in zip(samples[reference], runs, strict=False) if mine and its
        ]
        same = name == reference or not pairs
        rows.append(
            [
                name,
                spread([run.cost.seconds for run in made]),
                f"{median(run.cost.cpu_s for run in made):.2f}",
                f"{median(run.cost.peak_bytes for run in made) / 1e6:.0f}",
                f"{median(run.written for run in made) / 1e6:.0f}",
                "" if same else f"{median(mine.seconds / its.seconds for mine, its in pairs):.2f}",
                "" if same else f"{median(mine.cpu_s / its.cpu_s for mine, its in pairs):.2f}",
            ]
        )
    return markdown(head, rows)


def phases(runs: Sequence[Sample | None]) -> str:
    """One line: the median of each phase."""
    made = [run.phases for run in runs if run is not None and run.phases]
    if not made:
        return ""
    parts = [f"{name.removesuffix('_s')} {median(run[name] for run in made):.2f} s" for name in made[0]]
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
