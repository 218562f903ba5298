"""Which message a person leaves out, as it is written."""

from __future__ import annotations

import pytest

from lakebackup.errors import NotFound, UsageProblem
from lakebackup.plan.topics.backup import TopicState
from lakebackup_jobs.queues.backup.skipped import asked, by_partition

TOPICS = [TopicState("delta.1", "e1", 2, 1, {}), TopicState("journal", "e2", 1, 1, {})]


def test_a_place_is_of_the_topic_as_it_is_now() -> None:
    found = asked(["delta.1[1]@4711", "journal[0]@0", "delta.1[01]@4711"], TOPICS)
    assert found == {("delta.1", "e1", "1", 4711), ("journal", "e2", "0", 0)}
    assert by_partition(found) == {("delta.1", "e1", "1"): [4711], ("journal", "e2", "0"): [0]}


@pytest.mark.parametrize("text", ["delta.1", "delta.1[0]", "delta.1[0]@-1", "delta.1[x]@1", "[0]@1", ""])
def test_what_names_no_message(text: str) -> None:
    with pytest.raises(UsageProblem, match="does not name a message"):
        asked([text], TOPICS)


@pytest.mark.parametrize("text", ["delta.1[2]@1", "other[0]@1"])
def test_what_is_not_read(text: str) -> None:
    with pytest.raises(NotFound, match="reads no such partition"):
        asked([text], TOPICS)
