"""Clusters with many small topics: how each command grows with their number."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import linear_regression, median
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.benchmarks import ours
from tests.benchmarks.measure import Run, Sample, progress, rounds
from tests.benchmarks.report import markdown, report_lines

TOPICS = (10, 100, 1_000)
PARTITIONS, RECORDS = 3, 6  # of each topic
_BATCH = 200  # topics that one request creates or deletes

Work = Callable[[int, Run], Sample | str]


def many_topics(bootstrap: str, folder: Path, runs: int, scale: float) -> str:
    """Return Markdown: medians of cold commands, and what one more partition costs each."""
    folder.mkdir(parents=True)
    counts = sorted({max(2, round(count * scale)) for count in TOPICS})
    shapes = ManyTopics(bootstrap, folder)
    for count in counts:
        progress(f"making {count} topics")
        shapes.fill(count)
    run = ours.cold(folder / "command.log")
    jobs = {
        (work, count): partial(act, count, run) for work, act in shapes.works().items() for count in counts
    }
    samples = rounds(jobs, runs)
    rows = []
    for work in shapes.works():
        costs = {count: [s.cost for s in report_lines(samples[work, count])] for count in counts}
        if not all(costs.values()):
            rows.append([work, *[str(samples[work, counts[-1]][-1])] * (len(counts) + 1)])
            continue
        cells = [
            f"{median(c.seconds for c in of_count):.2f} ({median(c.cpu_s for c in of_count):.2f}, "
            f"{median(c.peak_bytes for c in of_count) / 1e6:.0f})"
            for of_count in costs.values()
        ]
        partitions = [count * PARTITIONS for count, of_count in costs.items() for _ in of_count]
        seconds = [cost.seconds for of_count in costs.values() for cost in of_count]
        growth = f"{linear_regression(partitions, seconds).slope * 1000:.1f}" if len(counts) > 1 else ""
        rows.append([work, *cells, growth])
    heads = [f"{count:,} topics: s (CPU s, MB)" for count in counts]
    return markdown(["", *heads, "one more partition: ms"], rows)


class ManyTopics:
    """Topics of PARTITIONS partitions with RECORDS records each, and commands on them."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap, self._folder = bootstrap, folder
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def fill(self, count: int) -> None:
        """Create `count` topics and write their records."""
        names = self._names(count)
        for first in range(0, count, _BATCH):
            topics = [NewTopic(name, PARTITIONS, 1) for name in names[first : first + _BATCH]]
            for future in self._admin.create_topics(topics).values():
                future.result(60)
        producer = Producer({"bootstrap.servers": self._bootstrap})
        for name in names:
            for number in range(RECORDS):
                producer.produce(name, b"x" * 50, b"key-%d" % number, number % PARTITIONS)
        assert producer.flush(300) == 0

    def works(self) -> dict[str, Work]:
        """Return the commands by name, in the order in which a round runs them."""
        return {
            "first backup": self._first,
            "backup with nothing new": self._backup,
            "dry run of a restore into topics": self._dry_run,
            "restore into topics": self._restore,
            "`verify`": self._verify,
        }

    def _names(self, count: int) -> list[str]:
        return [f"of-{count}-{number:04d}" for number in range(count)]

    def _repo(self, count: int) -> Path:
        return self._folder / f"repo-{count}"

    def _first(self, count: int, run: Run) -> Sample | str:
        shutil.rmtree(self._repo(count), ignore_errors=True)
        return self._backup(count, run)

    def _backup(self, count: int, run: Run) -> Sample | str:
        options = ["--bootstrap-server", self._bootstrap, "--repo", self._repo(count)]
        return run(["backup", "topics", "--pattern", f"of-{count}-.*", *options])

    def _restore_words(self, count: int, prefix: str) -> list[object]:
        names = self._names(count)
        maps = [word for name in names for word in ("--map", f"{name}={prefix}{name}")]
        to = ["--repo", self._repo(count), "--to", f"kafka://{self._bootstrap}"]
        return ["restore", "topics", "--pattern", f"of-{count}-.*", *to, *maps]

    def _dry_run(self, count: int, run: Run) -> Sample | str:
        return run([*self._restore_words(count, "copy-"), "--dry-run"])

    def _restore(self, count: int, run: Run) -> Sample | str:
        with self._new_topics(count) as prefix:
            return run(self._restore_words(count, prefix))

    @contextmanager
    def _new_topics(self, count: int) -> Iterator[str]:
        """Yield a prefix for the names of topics, and delete these topics at the end."""
        prefix = f"{uuid4().hex[:8]}-"
        try:
            yield prefix
        finally:
            present = set(self._admin.list_topics(timeout=30).topics)
            names = [prefix + name for name in self._names(count) if prefix + name in present]
            for first in range(0, len(names), _BATCH):
                for future in self._admin.delete_topics(names[first : first + _BATCH]).values():
                    future.result(60)

    def _verify(self, count: int, run: Run) -> Sample | str:
        return run(["verify", "--repo", self._repo(count)])
