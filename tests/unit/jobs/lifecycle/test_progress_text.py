"""The line of a run's progress, for counts and a clock that the test sets."""

from __future__ import annotations

import pytest

from lakebackup_jobs.lifecycle.progress_text import ProgressText, duration
from lakebackup_jobs.runtime.java.downloads import Download

GB = 1_000_000_000


class Clock:
    """A clock that a test sets."""

    time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def backup(clock: Clock, *, seconds: int = 14, total_bytes: int | None = 4 * GB) -> ProgressText:
    """A backup of files that has run for some seconds at 85 MB/s, or 1000 records/s."""
    progress = ProgressText(clock)
    progress.start(40_000, total_bytes, "backup", "records")
    progress.update(0, 0)
    for _ in range(seconds):
        clock.time_s += 1
        elapsed_s = round(clock.time_s - 100)
        progress.update(1000 * elapsed_s, 85_000_000 * elapsed_s)
    return progress


def test_each_part_is_labelled(clock: Clock) -> None:
    assert backup(clock).text() == (
        "backing up topics: 1.2 of 4.0 GB, 29%, 14,000 of 40,000 records, 85.0 MB/s, 14 s elapsed, 33 s left"
    )


def test_without_a_total_of_bytes_records_are_counted(clock: Clock) -> None:
    assert backup(clock, total_bytes=None).text() == (
        "backing up topics: 14,000 of 40,000 records, 35%, 1.2 GB, 1,000 records/s, 14 s elapsed, 26 s left"
    )


def test_without_a_total_nothing_is_said_of_what_is_left(clock: Clock) -> None:
    progress = ProgressText(clock)
    progress.start(None, None, "export", "rows")
    clock.time_s += 2
    progress.update(3000, 0)
    clock.time_s += 2
    progress.update(9000, 0)
    assert progress.text() == "exporting rows: 9,000 rows, 3,000 rows/s, 4 s elapsed"
    assert progress.share is None


def test_the_rate_is_that_of_the_last_half_minute(clock: Clock) -> None:
    progress = ProgressText(clock)
    progress.start(None, 100_000_000, "verify", "files")
    for second in range(1, 101):
        clock.time_s = 100.0 + second
        progress.update(second, 10_000_000 + 100_000 * second)
    assert "100.0 kB/s, 1 min 40 s elapsed, 13 min 20 s left" in progress.text()


def test_waiting_for_the_first_amount_does_not_count_in_the_rate(clock: Clock) -> None:
    progress = ProgressText(clock)
    progress.start(None, 100_000_000, "restore", "files")
    for _ in range(20):
        clock.time_s += 1
        progress.update(0, 0)
    assert progress.text() == "restoring files: 0 bytes of 100.0 MB, 0%, 20 s elapsed"
    clock.time_s += 2
    progress.update(1, 20_000_000)
    assert progress.text().endswith("20%, 1 files, 10.0 MB/s, 22 s elapsed, 8 s left")


def test_after_a_standstill_neither_rate_nor_remaining_time_is_shown(clock: Clock) -> None:
    progress = backup(clock)
    for _ in range(40):
        clock.time_s += 1
        progress.update(14_000, 14 * 85_000_000)
    assert progress.text().endswith("14,000 of 40,000 records, 54 s elapsed")


def test_a_total_that_was_too_low_is_not_shown(clock: Clock) -> None:
    progress = ProgressText(clock)
    progress.start(100, None, "backup", "records")
    clock.time_s += 5
    progress.update(120, 0)
    assert progress.text() == "backing up topics: 120 records, 5 s elapsed"


def test_a_finished_stage_has_no_remaining_time(clock: Clock) -> None:
    progress = backup(clock, seconds=40, total_bytes=None)
    assert "100%" in progress.text()
    assert "left" not in progress.text()


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (98, "backing up topics: 1.2 of 4.0 GB, 29%, 85.0 MB/s, 14 s elapsed, 33 s left"),
        (72, "backing up topics: 1.2 of 4.0 GB, 29%, 14 s elapsed, 33 s left"),
        (60, "backing up topics: 1.2 of 4.0 GB, 29%, 33 s left"),
        (40, "backing up topics: 29%, 33 s left"),
        (30, "backing up topics: 29%"),
        (20, "backing up topics"),
        (10, "backing u…"),
    ],
)  # fmt: skip
def test_a_narrow_line_loses_its_least_important_part_first(clock: Clock, width: int, text: str) -> None:
    assert backup(clock).text(width) == text
    assert len(text) <= width


def test_a_wait_is_shown_with_its_own_time_until_there_is_progress(clock: Clock) -> None:
    progress = ProgressText(clock)
    progress.start(10, None, "restore", "records")
    clock.time_s += 60
    progress.wait("starting \x1b]0;Spark")
    clock.time_s += 3
    progress.update(0, 0)
    assert progress.text() == "starting \\x1b]0;Spark: 3 s elapsed"
    progress.update(1, 0)
    assert progress.text() == "restoring topics: 1 of 10 records, 10%, 1 min 3 s elapsed"


def test_a_download_is_named_while_it_runs(clock: Clock) -> None:
    progress = ProgressText(clock)
    progress.wait("planning")
    clock.time_s += 1
    progress.download(Download("JVM libraries", 0, 48, 0, 100_000_000))
    assert progress.text() == "downloading JVM libraries: 0 bytes of 100.0 MB, 0%, 0 s elapsed"
    clock.time_s += 4
    progress.download(Download("JVM libraries (hadoop-aws)", 12, 48, 40_000_000, 100_000_000))
    assert progress.text() == (
        "downloading JVM libraries (hadoop-aws): 40.0 of 100.0 MB, 40%, 12 of 48 files, 10.0 MB/s, "
        "4 s elapsed, 6 s left"
    )
    progress.download(None)
    assert progress.text() == "planning: 5 s elapsed"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3_660, "1 h 1 min"), (90_000, "1 d 1 h")],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text
