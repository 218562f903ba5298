"""Transactions in backups of an engine's queues: which are open, and where their messages and ends are."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support import kafka_truth as truth
from tests.support.social import Social, ordered, put_back

from lakebackup.errors import Refused
from lakebackup_jobs.queues.backup import open_transactions as ending

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def test_messages_of_open_transactions_are_in_front_of_a_differential(social: Social) -> None:
    social.send(social.delta)
    front = social.send(social.delta, 0, "t1", "begin")
    social.send(social.delta, 0, "t2")
    also = social.send(social.delta, 0, "t1")
    social.send(social.delta, 0, "t2", "commit")
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"t1"}
    own = [
        social.send(social.delta),
        social.send(social.delta, 1, "t3"),
        social.send(social.delta, 0, "t1", "commit"),
    ]
    found = social.backup("differential")
    assert social.stored(found["backup_id"]) == ordered(front, also, *own)
    assert (found["parent"], found["kind"], found["carried"]) == (full["backup_id"], "cumulative", 2)
    assert social.open_at(found["backup_id"]) == {"t3"}
    # Once more from the same full: the same, and what came since.
    last = social.send(social.journal)
    again = social.backup("differential")
    assert social.stored(again["backup_id"]) == ordered(front, also, *own, last)
    assert again["parent"] == full["backup_id"]


def test_where_a_transaction_began_is_known_as_long_as_it_is_open(social: Social) -> None:
    social.send(social.delta)
    social.send(social.delta, 0, "t1", "begin")
    social.full()
    for _ in range(2):
        social.send(social.delta)
        backup_id = social.backup("incremental")["backup_id"]
        (row,) = social.rows(f"SELECT * FROM queue_transactions WHERE backup_id = '{backup_id}'")
        assert (row["first_position"], row["first_tid"], row["entries"]) == (1, 2, 1)
        at = f"backup_id = '{backup_id}' AND scope = '{social.delta}' AND region = '0'"
        (position,) = social.rows(f"SELECT no_transaction_position, last_tid FROM queue_positions WHERE {at}")
        assert position == {"no_transaction_position": 1, "last_tid": social.tid}


# --- what a snapshot says of them


def test_the_end_of_a_transaction_may_be_in_another_partition(social: Social) -> None:
    """It is before max_no_transaction_pos of that partition."""
    front = social.send(social.delta, 0, "open", "begin")
    social.send(social.delta, 0, "done")
    social.send(social.delta, 1, "done", "commit")
    last = social.send(social.delta, 1)
    places = {(social.delta, 0): (2, 0), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)}
    social.tell(3, places)
    assert social.open_at(social.full()["backup_id"]) == {"open"}
    assert social.stored(social.backup("differential")["backup_id"]) == ordered(front, last)
    social.tell(3, places, open_transactions=["open"])
    assert social.open_at(social.full()["backup_id"]) == {"open"}


def test_what_an_open_transaction_wrote_counts_into_the_tid_of_a_snapshot(social: Social) -> None:
    social.send(social.delta)
    front = social.send(social.delta, 0, "t1")
    places = {(social.delta, 0): (2, 1), (social.delta, 1): (0, 0), (social.journal, 0): (0, 0)}
    social.tell(1, places)
    with pytest.raises(Refused, match=r"last_tid 1, .*with tid 2") as error:
        social.full()
    assert "open count too" in str(error.value.hint)
    social.tell(2, places)
    assert social.full()["last_tid"] == 2
    assert social.stored(social.backup("differential")["backup_id"]) == [front]


def test_a_snapshot_that_is_open_from_further_back_than_it_says_is_refused(social: Social) -> None:
    social.send(social.delta, 1, "t1", "begin")
    social.send(social.delta)
    social.send(social.delta, 0, "t1")
    places = {(social.delta, 0): (2, 1), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)}
    social.tell(3, places)
    with pytest.raises(Refused, match=rf"t1 has one at offset 0 of topic {social.delta}, partition 1"):
        social.full()
    social.tell(3, {**places, (social.delta, 1): (1, 0)})
    assert social.open_at(social.full()["backup_id"]) == {"t1"}


# --- ends that were seen before their messages


@pytest.mark.long
def test_messages_later_than_their_commit_are_committed(social: Social) -> None:
    """A message comes to its queue, or to a partition that was not there, when the commit is backed up."""
    social.full()
    sent = [social.send(social.delta, 1, "t1", "begin", tid=1), social.send(social.journal, 0, "t1", tid=2)]
    sent.append(social.send(social.delta, 1, "t1", "commit", tid=5))
    sent.append(social.send(social.delta, 1, "t5", "begin", tid=7))
    first = social.backup("incremental")
    assert social.open_at(first["backup_id"]) == {"t5"}
    admin = AdminClient({"bootstrap.servers": social.bootstrap})
    admin.create_partitions([NewPartitions(social.delta, 3)])[social.delta].result(30)
    truth.until(
        lambda: len(admin.list_topics(timeout=10).topics[social.delta].partitions) == 3, "it is there"
    )
    social.producer = Producer({"bootstrap.servers": social.bootstrap})  # the other one knows of two
    late = [social.send(social.delta, 2, "t1", tid=4), social.send(social.delta, 0, "t1", tid=3)]
    sent += [*late, social.send(social.delta, 0, "t6", "begin", tid=8)]
    second = social.backup("incremental")
    assert social.stored(second["backup_id"]) == ordered(*late, sent[-1])
    assert social.open_at(second["backup_id"]) == {"t5", "t6"}
    maps = {name: f"{name}-restored" for name in (social.delta, social.journal)}
    try:
        put_back(social, "aside", maps=maps, append=False)
        found = [
            (name, record.partition, int(dict(record.headers)["tid"] or b""))
            for name, other in maps.items()
            for _, record in truth.read(social.bootstrap, other)
            if "tid" in dict(record.headers)
        ]
        assert sorted(found) == ordered(*(m for m in sent if m[2] not in (7, 8)))
    finally:
        for name in maps.values():
            truth.delete_topic(social.bootstrap, name)


# --- ends that do not count, and messages that are gone


def test_an_end_before_a_watermark_ends_nothing(social: Social) -> None:
    """A restored engine gives ids again that it gave in the history that was left."""
    social.send(social.delta, 0, "t17", "begin", tid=17)
    social.send(social.delta, 0, "t17", "commit", tid=18)
    social.mark("r1", 15, social.delta, 0)
    social.mark("r1", 15, social.delta, 1)
    front = social.send(social.delta, 0, "t17", "begin", tid=17)
    social.tell(17, {(social.delta, 0): (4, 3), (social.delta, 1): (1, 1), (social.journal, 0): (0, 0)})
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"t17"}
    end = social.send(social.delta, 1, "t17", "commit", tid=19)
    assert social.stored(social.backup("differential")["backup_id"]) == [front, end]


def test_what_the_queues_delete_meanwhile_is_not_searched(
    social: Social, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        social.send(social.journal)
    social.send(social.delta, 1, "t1", "commit", tid=9)
    social.full()
    late = social.send(social.delta, 0, "t1", "begin", tid=8)
    suspects = ending.Open.suspects

    def and_some_go(self: ending.Open, path: str) -> int | None:
        truth.delete_records(social.bootstrap, social.journal, {0: 2})
        return suspects(self, path)

    monkeypatch.setattr(ending.Open, "suspects", and_some_go)
    found = social.backup("incremental")
    assert social.stored(found["backup_id"]) == [late]
    assert social.open_at(found["backup_id"]) == set()


def test_a_full_drops_transactions_that_lost_messages(social: Social) -> None:
    gone = social.send(social.delta, 0, "gone", "begin")
    social.full()
    social.send(social.delta, 1, "gone")
    social.send(social.delta)
    kept = social.send(social.delta, 0, "kept", "begin")
    found = social.backup("incremental")
    assert social.open_at(found["backup_id"]) == {"gone", "kept"}
    truth.delete_records(social.bootstrap, social.delta, {0: 1})
    # The backups have what the queues have not: those go on.
    social.send(social.delta, 1)
    assert social.open_at(social.backup("incremental")["backup_id"]) == {"gone", "kept"}
    assert social.warnings.getvalue() == ""
    full = social.full()
    assert social.open_at(full["backup_id"]) == {"kept"}
    assert "1 transactions are open and have messages that the queues hold no more, such as gone" in (
        social.warnings.getvalue()
    )
    own = social.send(social.delta)
    assert social.stored(social.backup("differential")["backup_id"]) == ordered(kept, own)
    assert gone[2] < kept[2]
