"""Translates Kafka's error codes into errors for the person who runs a backup or a restore."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from lakebackup.errors import Damaged, EnvironmentProblem, LakebackupError, NotFound, UsageProblem

PARTITION_EOF = -191
#: The coordinator is loading, not available, or has moved.
COORDINATOR = frozenset({14, 15, 16})
#: Temporary problems that the client retries by itself. They become an error only after too long a wait.
PASSING = frozenset({-195, -187, -185, -193, 3, 5, 6, 7, 8, 9, 13, 56, 74, 75, 76, 78, 100, -188})
#: A topic or partition does not exist.
UNKNOWN_TOPIC = frozenset({3, -188, -190, 100})
ANSWER_S = 5.0
#: How long brokers must report a partition as missing. A broker that just started may not know all topics.
GONE_S = 3.0
_AUTHENTICATION = frozenset({-169, 58, -181})
#: A transactional producer was fenced: by a later one of its id, or because its transaction timed out.
_FENCED = frozenset({-144, 47, 90})
#: Codes with which a client ends a transaction that timed out; the last one is of records that were not sent.
_OUT_OF_TIME = _FENCED | {-192}
#: Codes of records that an abort dropped. They are consequences of another error, never the cause.
CONSEQUENCES = frozenset({-151, -152})


class Purged(EnvironmentProblem):
    """The broker no longer has records to read: retention, deletion or compaction overtook the reader."""


class Unanswered(EnvironmentProblem):
    """The brokers did not answer for as long as a client waits. They may be back now."""


class TransactionTooLong(UsageProblem):
    """The cluster accepts no transaction timeout of that length."""


class TransactionTimedOut(Unanswered):
    """A transaction took longer than its timeout, so the cluster has aborted it, or will."""


class Fenced(EnvironmentProblem):
    """Another restore with the same transactional id took over. This one must not write any more."""

    retryable = False


# Codes, the type of the error, the start of its message, and the hint.
_MEANINGS: tuple[tuple[Collection[int], type[LakebackupError], str, str], ...] = (
    (
        {1, -140},
        Purged,
        "this offset is no longer on the broker: ",
        (
            "Retention or a deletion overtook the backup. Run it again: it begins at what is left and "
            "records the gap; of an engine's queues, it reports whether a new full is needed."
        ),
    ),
    (UNKNOWN_TOPIC, NotFound, "there is no such topic or partition: ", "Was it deleted meanwhile?"),
    (
        _AUTHENTICATION,
        EnvironmentProblem,
        "the broker did not let this client in: ",
        "Check security.protocol and the sasl.* and ssl.* settings.",
    ),
    (
        {29, 30, 31, 53},
        EnvironmentProblem,
        "not allowed: ",
        "Give this user the rights, or name another user.",
    ),
    ({-186, 17, 33, 34}, UsageProblem, "", "Check the Kafka client settings."),
    (_FENCED, Fenced, "another restore took over: ", "Let it finish; this one wrote nothing more."),
    (
        {10, 18},
        UsageProblem,
        "",
        "Raise the topic's max.message.bytes, or the client's limit if it was lowered.",
    ),
    (
        {50},
        TransactionTooLong,
        "transaction.timeout.ms is longer than the cluster allows: ",
        (
            "Set a lower transaction.timeout.ms in the file of --kafka-config, or raise "
            "transaction.max.timeout.ms of the brokers."
        ),
    ),
    ({2, -199}, Damaged, "the broker's own bytes do not match their checksum: ", ""),
)


def fatal_event(code: int) -> bool:
    """Whether a client-wide event ends the run at once, without a wait for the event to pass."""
    return code in _AUTHENTICATION


def problem(code: int, text: str, location: str) -> LakebackupError:
    """The error to raise for a librdkafka code. `location` names topic, partition and offset."""
    reason = f"{text.rstrip('.')} (code {code})"
    for codes, kind, meaning, hint in _MEANINGS:
        if code in codes:
            return kind(f"{location}: {meaning}{reason}.", hint=hint)
    kind = Unanswered if code in PASSING | COORDINATOR else EnvironmentProblem
    return kind(f"{location}: {reason}.")


def transaction_problem(
    code: int, text: str, location: str, *, age_s: float, timeout_s: float
) -> LakebackupError:
    """The error to raise for a librdkafka code in a transaction that is `age_s` old and may take `timeout_s`.

    A fenced producer does not learn what fenced it: another producer, or the coordinator at the timeout. A
    transaction that is younger than its timeout was fenced by another producer.
    """
    if code not in _OUT_OF_TIME or age_s < timeout_s:
        return problem(code, text, location)
    return TransactionTimedOut(
        f"{location}: a transaction took longer than {timeout_s:g} s (transaction.timeout.ms), and the "
        "cluster aborts it. What was committed before stays.",
        hint="Run the same command again: it resumes. If it ends like this again, set a longer "
        "transaction.timeout.ms in the file of --kafka-config (at most transaction.max.timeout.ms), or "
        "raise the quota that throttles the client.",
    )


def partition_missing(config: Mapping[str, str], topic: str, partition: int) -> bool:
    """Whether brokers report for GONE_S that a partition does not exist.

    While brokers restart, none of them answers, and clients report unknown partitions by themselves.
    """
    admin = AdminClient({**config, "log_level": 0})

    def is_missing() -> bool:
        try:
            topics = admin.list_topics(timeout=ANSWER_S).topics
        except KafkaException:
            return False
        return topic not in topics or partition not in topics[topic].partitions

    retrying = Retrying(
        retry=retry_if_result(bool),
        wait=wait_fixed(0.5),
        stop=stop_after_delay(GONE_S),
        retry_error_callback=lambda _: True,
    )
    return bool(retrying(is_missing))


def stalled(
    seconds: float, last: tuple[int, str] | None, location: str, delays: Collection[str] = ()
) -> LakebackupError:
    """The error to raise after `seconds` without a record, an end or a change.

    `last`: code and text of the client's last report. `delays`: texts on what is known to delay the reader.
    """
    if last and (last[0] in UNKNOWN_TOPIC or last[0] not in PASSING | {PARTITION_EOF}):
        return problem(*last, location)
    details = f" The client's last word: {last[1]}." if last else ""
    details += "".join(f" Meanwhile, {text}." for text in delays)
    return Unanswered(
        f"{location}: nothing came for {seconds:g} s.{details}",
        hint="Is the broker up and can this machine reach the address it advertises?",
    )
