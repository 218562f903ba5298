"""Renders the samples of several tools as Markdown tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from tests.benchmarks.measure import Sample

COST = ("seconds (least to most)", "CPU s", "peak MB")
_PHASES = ("before_s", "data_s", "after_s")


def table(samples: Mapping[str, Sequence[Sample | str]], reference: str) -> str:
    """Return Markdown with one row per tool. The last two columns are the cost of `reference` divided by the
    cost of the tool."""
    head = ["", *COST, "written MB", "ours / it: time", "CPU"]
    rows = []
    for name, runs in samples.items():
        bytes_written = [run.written_bytes for run in report_lines(runs)]
        rows.append(
            [
                name,
                *cost(runs),
                f"{median(bytes_written) / 1e6:.0f}" if bytes_written else "",
                *(["", ""] if name == reference else ratio(samples[reference], runs)),
            ]
        )
    return markdown(head, rows)


def report_lines(runs: Sequence[Sample | str]) -> list[Sample]:
    """Return the runs that have a sample."""
    return [run for run in runs if isinstance(run, Sample)]


def cost(runs: Sequence[Sample | str]) -> list[str]:
    """Return the medians of time, CPU and memory, or the reason why there is no sample."""
    costs = [run.cost for run in report_lines(runs)]
    if not costs:
        return [*(str(run) for run in runs[-1:]), "", ""]
    return [
        spread([run_cost.seconds for run_cost in costs]),
        f"{median(run_cost.cpu_s for run_cost in costs):.2f}",
        f"{median(run_cost.peak_bytes for run_cost in costs) / 1e6:.0f}",
    ]


def ratio(runs: Sequence[Sample | str], references: Sequence[Sample | str]) -> list[str]:
    """Return the medians over all rounds of time and CPU of `runs` divided by those of `references`."""
    pairs = [
        (sample.cost, reference.cost)
        for sample, reference in zip(runs, references, strict=True)
        if isinstance(sample, Sample) and isinstance(reference, Sample)
    ]
    if not pairs:
        return ["", ""]
    time = median(run_cost.seconds / reference_cost.seconds for run_cost, reference_cost in pairs)
    return [
        f"{time:.2f}",
        f"{median(run_cost.cpu_s / reference_cost.cpu_s for run_cost, reference_cost in pairs):.2f}",
    ]


def phases(runs: Sequence[Sample | str]) -> str:
    """Return one line: the median of each phase that a warm session reported."""
    reports = [run.result for run in report_lines(runs) if _PHASES[0] in run.result]
    if not reports:
        return ""
    parts = [
        f"{name.removesuffix('_s')} {median(report[name] for report in reports):.2f} s" for name in _PHASES
    ]
    return f"Where the warm run's time goes (medians): {', '.join(parts)}."


def spread(values: Sequence[float]) -> str:
    """Return the median, the minimum and the maximum as text."""
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table with aligned columns."""
    lines = [head, ["---"] * len(head), *rows]
    widths = [max(len(row[column]) for row in lines) for column in range(len(head))]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |"
        for row in lines
    )
