"""Runs a follower of topics on a thread of the test."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support import kafka_truth as truth
from tests.support.faults import catalog_rows, stored_records
from tests.support.runs import Lab

from lakebackup_jobs.topics.follow import follow


class Following:
    """A follower on its own thread; `outcomes` has its result or its error."""

    def __init__(self, lab: Lab, *topics: str, **changes: Any) -> None:
        lab.make_catalog()
        self.stop = threading.Event()
        self.outcomes: list[dict[str, Any] | Exception] = []
        self._request = lab.topics_request(topics, **changes)
        self._thread = threading.Thread(target=self._run, args=(lab,), name="follow")
        self._thread.start()

    def _run(self, lab: Lab) -> None:
        try:
            result = follow(
                self._request, every_s=0.2, stop=self.stop, spark=lab.spark, reporter=lab.reporter
            )
            self.outcomes.append(result)
        except Exception as error:  # noqa: BLE001 - the test checks it
            self.outcomes.append(error)

    def join(self) -> dict[str, Any] | Exception:
        self._thread.join(240)
        assert self.outcomes
        return self.outcomes[0]


@contextmanager
def following(lab: Lab, *topics: str, **changes: Any) -> Iterator[Following]:
    run = Following(lab, *topics, **changes)
    try:
        yield run
    finally:
        run.stop.set()
        run.join()


def until_stored(run: Following, lab: Lab, topic: str) -> None:
    """Wait until the catalog has every record that the topic has now, once and in order."""
    expected = truth.contents(lab.bootstrap, topic)

    def all_stored() -> bool:
        assert not run.outcomes, str(run.outcomes[0])
        return stored_records(lab) == expected

    truth.until(all_stored, f"{topic} is backed up")


def kinds(lab: Lab) -> list[str]:
    backups = sorted(catalog_rows(lab)["backups"], key=lambda b: b["number"])
    assert [b["number"] for b in backups] == list(range(1, len(backups) + 1))
    assert [b["parent"] for b in backups[1:]] == [b["backup_id"] for b in backups[:-1]]
    return [b["kind"] for b in backups]
