"""The commands of the documentation's pages, changed to use a topic of the tests' broker."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support import consumers
from tests.support import kafka_truth as truth
from tests.support.kafka_truth import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_RECORDS = 90


class Step(NamedTuple):
    """A command of a page, and the lines of output that the page shows."""

    page: str
    command: str
    output_lines: list[str]


@dataclass(frozen=True)
class Orders:
    """The topic in place of the pages' `orders`, and the broker in place of theirs."""

    name: str
    bootstrap: str
    start_ms: int

    @classmethod
    def create(cls, bootstrap: str) -> Orders:
        """Create a topic with a consumer group and records of the last hour, which no retention deletes."""
        now_ns = time.time_ns()
        topic = cls(f"orders-{now_ns}", bootstrap, now_ns // 1_000_000 - 3_600_000)
        rows = [
            Record(i % 2, b"customer-%d" % (i % 9), b"value %d" % i, (), topic.start_ms + i)
            for i in range(_RECORDS)
        ]
        truth.create_topic(bootstrap, topic.name, 2)
        truth.produce(bootstrap, topic.name, rows)
        consumers.commit(bootstrap, f"{topic.name}-app", {(topic.name, 0): 5, (topic.name, 1): 5})
        return topic

    def steps(self, page: str) -> Iterator[Step]:
        """The commands of a page in their order, with the names of this topic and this broker; 14:05 becomes
        an instant between its records."""
        moment = datetime.fromtimestamp((self.start_ms + 50) / 1000, UTC).isoformat()
        for block in _BLOCK.findall((DOCS / page).read_text("utf-8")):
            for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                command, *output_lines = part.strip().splitlines()
                command = command.replace("localhost:9092", self.bootstrap).replace("14:05", moment)
                command = re.sub(r"\borders(?=[-=' |]|$)", self.name, command)
                yield Step(page, command, [line.replace("orders", self.name) for line in output_lines])

    def contents(self, suffix: str = "") -> dict[int, list[Record]]:
        """The records of the topic, or of the one whose name has this suffix."""
        return truth.contents(self.bootstrap, f"{self.name}{suffix}")


def check(step: Step, code: int, printed: str) -> None:
    """Check that a command ends with 0 (`status` may report a problem) and prints the lines of the page."""
    assert code == 0 or (code == 4 and step.command.startswith("lakebackup status")), (step, code, printed)
    for line in step.output_lines:
        assert line in printed, (step, printed)
