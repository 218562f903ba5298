"""Reads the plan of a restore that an older version did not finish: JSON lines for each partition.

Nothing writes this form any more. A restore that finds it is resumed with the same files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import pyarrow as pa

from lakebackup.errors import NotFound
from lakebackup.storage import Storage, working
from lakebackup.store.plan_file import PlanFile, write_plan_file

# Written last, so a plan that has it is complete.
_INDEX = "plan/tasks.json"
_PARTITION = ("scope", "epoch", "region")


class OldPlan(NamedTuple):
    """A plan of the old form. `file`: its rows, in a temporary plan file.

    `shares`: the rows of each partition (first, end, names), in the order in which tasks begin them. `state`:
    what a run that resumes the restore needs besides; empty: nothing was recorded.
    """

    file: PlanFile
    shares: Sequence[tuple[int, int, tuple[str, ...]]]
    state: Mapping[str, Any]


def read_old_plan(storage: Storage, folder: str) -> OldPlan | None:
    """The plan of the old form below the folder of a restore; None if there is none, or not all of it."""
    try:
        tasks = json.loads(working.read_latest(storage, f"{folder}{_INDEX}"))
        paths = [path for paths in zip_longest(*tasks) for path in paths if path]
        partitions = [_lines(storage, path) for path in paths]
    except NotFound:
        return None
    rows: list[dict[str, Any]] = []
    shares = []
    for lines in partitions:
        # The first line of a partition of a queue has its names; its files follow.
        names = lines[0].values() if "target" in lines[0] else [lines[0][name] for name in _PARTITION]
        files = [line for line in lines if "path" in line]
        shares.append((len(rows), len(rows) + len(files), tuple(names)))
        rows += files
    file = write_plan_file([pa.Table.from_pylist(rows).to_reader(10_000)])
    return OldPlan(file, shares, _state(storage, folder))


def _lines(storage: Storage, path: str) -> list[dict[str, Any]]:
    with storage.open(path) as stream:
        return [json.loads(line) for line in stream]


def _state(storage: Storage, folder: str) -> dict[str, Any]:
    for name in ("resume.json", "parts.json"):
        try:
            content = json.loads(storage.get(f"{folder}plan/{name}"))
        except NotFound:
            continue
        return {"parts": content} if isinstance(content, list) else dict(content)
    return {}
