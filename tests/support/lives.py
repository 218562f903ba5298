"""Random lives of backups for hypothesis's state machines, the same in every run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from tests.support import kafka_truth as truth
from tests.support.faults import Killed, Steps, expire_leases, watched
from tests.support.runs import Lab

from lakebackup.errors import EnvironmentProblem
from lakebackup.plan.topics.request import RestoreRequest, plan_restore
from lakebackup.plan.topics.restore import require_restorable
from lakebackup.rules import layout
from lakebackup.storage import Storage
from lakebackup.store import manifest as sidecar
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.source import Source


def live(machine: Callable[[], RuleBasedStateMachine], lives: int, steps: int) -> None:
    """Run `lives` lives of `steps` steps each; if one fails, look for the shortest one that does."""
    profile = settings(
        max_examples=lives,
        stateful_step_count=steps,
        derandomize=True,
        database=None,
        print_blob=True,
        phases=(Phase.generate, Phase.shrink),
    )
    run_state_machine_as_test(machine, settings=profile)


def read_draft(storage: Storage, name: str, source: type[Source[Any]]) -> Any:
    """The draft that an interrupted backup of a source left; None without one."""
    assert source.DRAFT
    return sidecar.get_record(storage, layout.in_progress_path(name), source.DRAFT)


@contextmanager
def dying(destination: Path, step: int | str | None) -> Iterator[Steps]:
    """The block dies before the step `step`, if it gets there. Then its leases are made to expire."""
    folder = Path(tempfile.mkdtemp(dir=destination.parent)) / "steps"
    with watched(folder, kill_at=step) as steps, suppress(Killed):
        try:
            yield steps
        except EnvironmentProblem:
            if not steps.dead:
                raise
    if steps.dead:
        expire_leases(destination)


def planned(lab: Lab, topic: str, to_ts: int | None, partitions: int) -> list[list[tuple[int, truth.Record]]]:
    """The records of each partition that a restore would write: the files of its plan, read by fastavro."""
    request = RestoreRequest(str(lab.folder), "dir:x", topics=(topic,), to_ts=to_ts)
    plan = plan_restore(request, CatalogReader.require(str(lab.folder)))
    require_restorable(plan, {"empty"})
    records_by_partition: list[list[tuple[int, truth.Record]]] = [[] for _ in range(partitions)]
    for file in plan.file.table().to_pylist():
        for offset, record in truth.records_in(lab.folder / file["path"]):
            if to_ts is None or record.timestamp <= to_ts:
                records_by_partition[record.partition].append((offset, record))
    return [sorted(rows, key=lambda pair: pair[0]) for rows in records_by_partition]
