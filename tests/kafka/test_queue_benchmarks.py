"""The benchmarks of queues at a small size: they count what came in, and figures come out of all tools."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.benchmarks import queue_writers
from tests.benchmarks.ours import Session
from tests.benchmarks.queue_writers import writing
from tests.benchmarks.queues import CONSUMER, COPY, DIFFERENTIAL, FULL, INCREMENTAL, PART, Ratio

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lakebackup_jobs.demo.broker import Broker


def figures(table: str) -> dict[str, list[float]]:
    """The numbers of each row, by its name."""
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")]
    return {
        name.strip(): [
            float(found.replace(",", ""))
            for cell in cells
            for found in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)
        ]
        for name, *cells in rows
    }


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(tmp_path_factory.mktemp("session") / "log") as living:
        yield living


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.long
def test_full_and_differential(broker: Broker, session: Session, tmp_path: Path) -> None:
    found = figures(Ratio(broker, session, tmp_path / "ratio", 20_000_000).rounds(1, before=0))
    for name, changed in ((PART, 0.02), (DIFFERENTIAL, 0.2), (INCREMENTAL, 0.2)):
        assert found[name][0] == pytest.approx(changed, abs=0.03)
        assert found[f"{CONSUMER}, {'0.1' if name == PART else '1'} %"][0] == pytest.approx(changed, abs=0.03)
        assert min(found[name][1:]) > 0
    # What a full leaves is the store, as a copy's; what came in since is stored smaller than it was.
    assert found[FULL][5] == pytest.approx(found[COPY][5], rel=0.1)
    assert found[INCREMENTAL][5] < 1


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.long
def test_writers(broker: Broker, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_writers, "ALONE_S", 1.0)
    monkeypatch.setattr(queue_writers, "WARM_S", 0.5)
    found = figures(writing(broker, session, tmp_path / "writers", 10_000_000, 1, before=0))
    assert set(found) - {"meanwhile", "---"} == {
        queue_writers.DIFFERENTIAL, queue_writers.FULL, queue_writers.COPY, queue_writers.CONSUMER
    }  # fmt: skip
    for name in set(found) - {"meanwhile", "---"}:
        seconds, alone, during, *_ = found[name]
        assert seconds > 0
        assert alone > 100
        assert during > 0
