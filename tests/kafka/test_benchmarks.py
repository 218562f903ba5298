"""The benchmarks at a small size: they count what came in, and figures come out of all tools."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.benchmarks import (
    __main__,
    changelog_rpo,
    cost,
    growth,
    growth_data,
    measure,
    memory,
    ours,
    queue_writers,
)
from tests.benchmarks.measure import Cost, Job, MeasuringError, Sample
from tests.benchmarks.ours import Session
from tests.benchmarks.queue_load import TRANSACTION, messages
from tests.benchmarks.queue_writers import WriterNotes, effect, writing
from tests.benchmarks.queues import CONSUMER, COPY, DIFFERENTIAL, FULL, INCREMENTAL, PART, Ratio
from tests.benchmarks.shapes.every import SHAPES
from tests.benchmarks.shapes.growing import Setting, Shape, grow
from tests.benchmarks.warm import Living

from lakebackup_jobs.cli import verb
from lakebackup_jobs.demo.broker import Broker


def figures(table: str) -> dict[str, list[float]]:
    """The numbers of each row, by its name."""
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| ")]
    return {
        name.strip(): [
            float(number.replace(",", ""))
            for cell in cells
            for number in re.findall(r"\d[\d,]*(?:\.\d+)?", cell)
        ]
        for name, *cells in rows
    }


def test_a_load_has_whole_transactions_and_tids_that_rise() -> None:
    partitions = [("d", 0), ("d", 1), ("j", 0)]
    load_messages = list(islice(messages(partitions, 10), TRANSACTION * 12))
    tids = [int(dict(headers)["tid"]) for _, _, _, headers in load_messages]
    assert tids == list(range(11, 11 + len(load_messages)))
    assert {partition for partition, *_ in load_messages} == set(partitions)
    runs = [load_messages[first : first + TRANSACTION] for first in range(0, len(load_messages), TRANSACTION)]
    for run in runs[0::2]:
        assert not any("transaction" in dict(headers) for *_, headers in run)
    names = set()
    for run in runs[1::2]:
        run_headers = [dict(headers) for *_, headers in run]
        assert (
            len({fields["transaction"] for fields in run_headers})
            == len({partition for partition, *_ in run})
            == 1
        )
        assert [fields["kind"] for fields in run_headers] == [
            b"begin",
            *[b"write"] * (TRANSACTION - 2),
            b"commit",
        ]
        names.add(run_headers[0]["transaction"])
    assert len(names) == len(runs) // 2


def test_the_effect_on_writers_compares_pauses_of_spans_that_are_as_long() -> None:
    # 20 messages in each twentieth of a second of the first eight, 5 from then on.
    ticks = {tick: 20 if tick < 160 else 5 for tick in range(240)}
    pauses = [(0.5, 0.6), (2.9, 3.2), (4.1, 4.3), (7.9, 8.4), (11.0, 11.1)]
    second_writer = WriterNotes(ticks, [(6.5, 6.6)])
    act_effect = effect([WriterNotes(ticks, pauses), second_writer], (0.0, 8.0), (8.0, 10.0))
    assert (act_effect.seconds, act_effect.without_backup, act_effect.during) == (2.0, 800, 200)
    # Of [0, 2), [2, 4), [4, 6), [6, 8): 0.1, 0.3, 0.2 and 0.5 s.
    assert act_effect.pause_alone == pytest.approx(0.25)
    assert act_effect.pause_during == pytest.approx(0.5)


@pytest.fixture
def every_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "UNCOUNTED", 0)


class LocalPlace:
    """The session of a benchmark in this process: no JVM is started."""

    def __init__(self, spark: SparkSession) -> None:
        self._living = Living(spark)

    def run(self, words: Sequence[object]) -> Sample:
        report = self.ask(*words)
        return Sample(Cost(report["seconds"], 1.0, 1), 0, report)

    def ask(self, *words: object) -> dict[str, Any]:
        report = self._living.answer([str(word) for word in words])
        if "code" in report:
            raise MeasuringError(report["code"])
        return report


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.usefixtures("every_round_counts")
def test_every_other_case_has_figures(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other test sees that what a benchmark names or calls has moved. Real sessions are below."""
    session = LocalPlace(spark)
    monkeypatch.setattr(verb, "reporter", verb.reporter)  # a session replaces it
    monkeypatch.setattr(ours, "cold", lambda _: session.run)
    for module in (memory, __main__):
        monkeypatch.setattr(module, "Session", lambda _: nullcontext(session))
    monkeypatch.setattr(cost, "UNITS", (1, 2))
    monkeypatch.setattr(changelog_rpo, "RATES", (1000,))
    monkeypatch.setattr(growth_data, "FLUSHES_A_DAY", 12)
    monkeypatch.setattr(growth, "WEEKS_KEPT", 1)
    # The catalogs of two of those left out are made for the plans of `cost` too. The rest have tests below.
    left_out = ("queue-ratio", "queue-writers", "catalog", "chains", "shapes")
    cases = [case for case in __main__.CASES if case not in left_out]
    small = ("--runs", "1", "--scale", "0.001", "--days", "1", "--weeks", "1")
    code = __main__.main([*cases, *small])
    output, err = capfd.readouterr()
    assert code == 0, output[-4000:] + err
    assert f"| {measure.FAILED} " not in output, err
    # Backups and restores of two sizes, merges of both, three of encryption, growth of logs and of removals.
    assert output.count("\n### ") == len(cases) + 6


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.usefixtures("every_round_counts")
def test_every_shape_has_figures(
    spark: SparkSession, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb, "reporter", verb.reporter)
    monkeypatch.setattr(ours, "cold", lambda _: LocalPlace(spark).run)
    code = __main__.main(["shapes", "--runs", "1", "--scale", "0.001"])
    output, err = capfd.readouterr()
    assert code == 0, output[-4000:] + err
    assert output.count("\n### ") == len(SHAPES)


@contextmanager
def wrong_shape(_: Setting, size: int) -> Iterator[Shape]:
    """A shape whose larger size is restored wrongly in the round that does not count."""

    class Wrong:
        failures = iter([size == 2])

        def works(self) -> dict[str, Job]:
            return {"restore": self.restore}

        def restore(self) -> Sample:
            if next(self.failures, False):
                raise MeasuringError("a record is missing")
            return Sample(Cost(1.0, 1.0, 1))

    yield Wrong()


def test_a_shape_fails_when_any_round_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="a record is missing"):
        grow("", tmp_path, wrong_shape, (1, 2), "records", runs=1)


def test_the_peaks_of_the_driver_and_of_its_largest_worker_are_apart(tmp_path: Path) -> None:
    sleep = 'import time; text = b"x" * 150_000_000; time.sleep(1)'
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {sleep!r}])"
    cost_of_tree = measure.of_command([sys.executable, "-c", code], tmp_path / "log")
    assert 0 < cost_of_tree.driver_bytes < 100_000_000
    assert cost_of_tree.worker_bytes > 150_000_000
    assert cost_of_tree.peak_bytes > 150_000_000


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    with Session(tmp_path_factory.mktemp("session") / "log") as living:
        yield living


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.usefixtures("every_round_counts")
def test_full_and_differential(broker: Broker, session: Session, tmp_path: Path) -> None:
    table_figures = figures(Ratio(broker, session, tmp_path / "ratio", 20_000_000).rounds(1))
    for name, changed in ((PART, 0.02), (DIFFERENTIAL, 0.2), (INCREMENTAL, 0.2)):
        assert table_figures[name][0] == pytest.approx(changed, abs=0.03)
        assert table_figures[f"{CONSUMER}, {'0.1' if name == PART else '1'} %"][0] == pytest.approx(
            changed, abs=0.03
        )
        assert min(table_figures[name][1:]) > 0
    # What a full leaves is the store, as a copy's; what came in since is stored smaller than it was.
    assert table_figures[FULL][6] == pytest.approx(table_figures[COPY][6], rel=0.1)
    assert table_figures[INCREMENTAL][6] < 1


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.usefixtures("every_round_counts")
def test_writers(broker: Broker, session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_writers, "ALONE_S", 1.0)
    monkeypatch.setattr(queue_writers, "WARM_S", 0.5)
    table_figures = figures(writing(broker, session, tmp_path / "writers", 10_000_000, 1))
    assert set(table_figures) - {"meanwhile", "---"} == {
        queue_writers.DIFFERENTIAL, queue_writers.FULL, queue_writers.COPY, queue_writers.CONSUMER
    }  # fmt: skip
    for name in set(table_figures) - {"meanwhile", "---"}:
        seconds, without_backup, during, *_ = table_figures[name]
        assert seconds > 0
        assert without_backup > 100
        assert during > 0
