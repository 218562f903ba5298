"""Loads librdkafka, the C library inside confluent-kafka's wheel, by ctypes, and checks it before use.

The Python client makes one object per message, which costs ten times what the bytes do. The library's own
functions (rdkafka.h, its public and ABI-stable header) return arrays of message pointers instead, with
the same TLS, SASL, compression, transactions and retries.
"""

from __future__ import annotations

import ctypes as c
import time
from collections.abc import Mapping
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Final

from llvmlite import binding

from lakebackup.config import is_secret
from lakebackup.errors import EnvironmentProblem, UsageProblem

#: The versions that this code supports. rd_kafka_message_t, rd_kafka_vu_t and the codes below are the same in
#: their headers, and 2.x promises not to change them.
OLDEST, MAJOR = 0x020A0000, 0x02
#: Constants of rdkafka.h: the kinds of clients and of events.
CONSUMER, PRODUCER = 1, 0
EVENT_DELIVERY, EVENT_LOG, EVENT_ERROR = 0x1, 0x4, 0x8

#: Seconds without any progress after which a client gives up.
PATIENCE = 60.0
#: Seconds without any progress after which a client gives up while its brokers throttle it.
THROTTLED_S = 600.0
#: Seconds for which `delays` reports a cause after it last occurred.
_REPORTED_S = 10.0
_THROTTLED = "the brokers throttle this client (a quota of the cluster): it goes on as fast as they allow"
_UNANSWERED = "no broker answers: the work waits for them to come back"
_ALL_BROKERS_DOWN = -187
#: Settings that correct reading depends on. A user's own settings cannot change them.
READING: Mapping[str, str] = {
    "enable.partition.eof": "true",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
}
#: Settings that correct writing depends on. A user's own settings cannot change them.
WRITING: Mapping[str, str] = {
    "enable.idempotence": "true",
    "acks": "all",
    "delivery.report.only.error": "true",
    "allow.auto.create.topics": "false",
}
#: Defaults for reading, which a user's own settings may change. The limits of the queue (`queued.…`) bound
#: memory: librdkafka counts the bytes of keys and values, but takes about 500 more for each record, so the
#: number of records has a limit too. There is hardly a wait between fetches (`fetch.queue.backoff.ms`), since
#: waiting halved the speed. Brokers answer at once (`fetch.wait.max.ms`): the records exist already, and a
#: fetch that waits at the end of a partition delays the next one.
READING_TUNING: Mapping[str, str] = {
    "fetch.queue.backoff.ms": "1",
    "fetch.wait.max.ms": "1",
    "fetch.message.max.bytes": str(4 << 20),
    "fetch.max.bytes": str(4 << 20),
    "receive.message.max.bytes": str(1_100_000_000),
    "queued.min.messages": "100000",
    "queued.max.messages.kbytes": str(8 << 10),
    "topic.metadata.propagation.max.ms": "5000",
    "check.crcs": "true",
    # Brokers that throttle delay their responses.
    "socket.timeout.ms": "300000",
}
#: Defaults for writing, which a user's own settings may change. A batch is bounded by bytes, below what
#: topics allow by default, so that many large records never make one too large. A single larger record still
#: goes in a batch of its own. The queue is bounded in records here, as for reading, and in bytes by `Engine`
#: (QUEUE_BYTES). A transaction may take as long as clusters allow by default: brokers may throttle it, or
#: restart in its middle.
WRITING_TUNING: Mapping[str, str] = {
    "linger.ms": "100",
    "reconnect.backoff.ms": "20",
    "compression.type": "lz4",
    "batch.size": "900000",
    "batch.num.messages": "1000000",
    "queue.buffering.max.messages": "200000",
    "queue.buffering.max.kbytes": str((1 << 31) - 1),
    "message.max.bytes": "1000000000",
    "transaction.timeout.ms": "900000",
}


#: The timeouts of transactions (ms) to try in turn in a cluster that accepts none that is longer
#: (`transaction.max.timeout.ms`). The first one is WRITING_TUNING's.
TRANSACTION_TIMEOUTS_MS = (900_000, 300_000, 60_000, 10_000)


def writing_tuning(patience: float, config: Mapping[str, str]) -> dict[str, str]:
    """Return WRITING_TUNING and `config` for one client, with a timeout for requests (socket.timeout.ms).

    Without one, librdkafka lets a transaction's requests wait for a dead broker for transaction.timeout.ms,
    whatever timeout the call has. The timeout is five times `patience` (seconds), since brokers that throttle
    delay responses for longer than that, and at most five minutes. librdkafka accepts none that is longer
    than a transaction's.
    """
    properties = {**WRITING_TUNING, **config}
    text = properties["transaction.timeout.ms"]
    transaction_ms = int(text) if text.isdecimal() else TRANSACTION_TIMEOUTS_MS[0]
    timeout_ms = min(int(patience * 5000), 300_000, transaction_ms)
    return {"socket.timeout.ms": str(timeout_ms), **properties}


class Message(c.Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c.c_int),
        ("rkt", c.c_void_p),
        ("partition", c.c_int32),
        ("payload", c.c_void_p),
        ("len", c.c_size_t),
        ("key", c.c_void_p),
        ("key_len", c.c_size_t),
        ("offset", c.c_int64),
        ("_private", c.c_void_p),
    )


class ListElement(c.Structure):
    """rd_kafka_topic_partition_t."""

    _fields_ = (
        ("topic", c.c_char_p),
        ("partition", c.c_int32),
        ("offset", c.c_int64),
        ("metadata", c.c_void_p),
        ("metadata_size", c.c_size_t),
        ("opaque", c.c_void_p),
        ("err", c.c_int),
        ("_private", c.c_void_p),
    )


ARGUMENT_BYTES: Final = 72  # rd_kafka_vu_t: the tag, padded to 8, and a union of 64

_P, _I, _S, _Z = c.c_void_p, c.c_int, c.c_char_p, c.c_size_t
_ON_THROTTLE = c.CFUNCTYPE(None, _P, _S, c.c_int32, _I, _P)
# Client -> until when (monotonic seconds) its brokers delay their responses.
_throttled_until: dict[int, float] = {}
# Cause -> until when (monotonic seconds) `delays` reports it.
_delays: dict[str, float] = {}


def _record_throttle(handle: int, _name: bytes, _node: int, milliseconds: int, _opaque: int) -> None:
    end_s = time.monotonic() + milliseconds / 1000
    _throttled_until[handle] = max(end_s, _throttled_until.get(handle, 0.0))
    if milliseconds:
        _delays[_THROTTLED] = end_s + _REPORTED_S


# The module keeps a reference to the callback: librdkafka has only its address.
_record_throttle_callback = _ON_THROTTLE(_record_throttle)


# The functions that this package calls: name without `rd_kafka_`, then types of result and arguments.
# Compiled code calls further ones (native.py).
_FUNCTIONS: dict[str, tuple[object, tuple[object, ...]]] = {
    "version": (_I, ()),
    "err2str": (_S, (_I,)),
    "conf_new": (_P, ()),
    "conf_set": (_I, (_P, _S, _S, _S, _Z)),
    "conf_destroy": (None, (_P,)),
    "conf_set_events": (None, (_P, _I)),
    "conf_set_throttle_cb": (None, (_P, _ON_THROTTLE)),
    "new": (_P, (_I, _P, _S, _Z)),
    "destroy": (None, (_P,)),
    "set_log_queue": (_I, (_P, _P)),
    "topic_new": (_P, (_P, _S, _P)),
    "topic_destroy": (None, (_P,)),
    "queue_new": (_P, (_P,)),
    "queue_get_main": (_P, (_P,)),
    "queue_destroy": (None, (_P,)),
    "queue_length": (_Z, (_P,)),
    "queue_poll": (_P, (_P, _I)),
    "event_type": (_I, (_P,)),
    "event_error": (_I, (_P,)),
    "event_error_string": (_S, (_P,)),
    "event_message_next": (_P, (_P,)),
    "event_destroy": (None, (_P,)),
    "consume_start_queue": (_I, (_P, c.c_int32, c.c_int64, _P)),
    "consume_stop": (_I, (_P, c.c_int32)),
    "consume_batch_queue": (c.c_ssize_t, (_P, _I, _P, _Z)),
    "last_error": (_I, ()),
    "position": (_I, (_P, _P)),
    "query_watermark_offsets": (_I, (_P, _S, c.c_int32, _P, _P, _I)),
    "metadata": (_I, (_P, _I, _P, _P, _I)),
    "metadata_destroy": (None, (_P,)),
    "message_errstr": (_S, (_P,)),
    "flush": (_I, (_P, _I)),
    "outq_len": (_I, (_P,)),
    "init_transactions": (_P, (_P, _I)),
    "begin_transaction": (_P, (_P,)),
    "commit_transaction": (_P, (_P, _I)),
    "abort_transaction": (_P, (_P, _I)),
    "send_offsets_to_transaction": (_P, (_P, _P, _P, _I)),
    "consumer_group_metadata_new": (_P, (_S,)),
    "consumer_group_metadata_destroy": (None, (_P,)),
    "topic_partition_list_new": (_P, (_I,)),
    "topic_partition_list_add": (c.POINTER(ListElement), (_P, _S, c.c_int32)),
    "topic_partition_list_destroy": (None, (_P,)),
    "error_code": (_I, (_P,)),
    "error_string": (_S, (_P,)),
    "error_destroy": (None, (_P,)),
}


def find() -> Path | None:
    """Return the library's file inside the installed confluent-kafka.

    None: confluent-kafka was built against the system's librdkafka.
    """
    for entry in metadata.files("confluent-kafka") or ():
        if entry.name.startswith(("librdkafka-", "librdkafka.")) and (
            ".so" in entry.name or ".dylib" in entry.name
        ):
            return Path(str(entry.locate())).resolve()
    return None


@lru_cache(maxsize=1)
def load() -> c.CDLL:
    """Load and check the library, and declare its functions as `rd_kafka_…`, also for compiled code.

    Raises EnvironmentProblem when the library is missing or its version is not supported.
    """
    path = find()
    if path is None:
        raise EnvironmentProblem(
            "confluent-kafka was installed without its own librdkafka.",
            hint="Install its wheel: pip install --force-reinstall --only-binary :all: confluent-kafka",
        )
    try:
        library = c.CDLL(str(path))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, f"rd_kafka_{name}")
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise EnvironmentProblem(f"{path.name} cannot be used: {error}.") from None
    version = int(library.rd_kafka_version())
    if version < OLDEST or version >> 24 != MAJOR:
        raise EnvironmentProblem(f"{path.name} is version {version:#010x}; 2.10 or a later 2.x is needed.")

    binding.load_library_permanently(str(path))
    return library


def new_client(kind: int, config: Mapping[str, str], *, hard: Mapping[str, str]) -> int:
    """Create a client with `config` and with `hard`, which overrides it. Return its address, an `rd_kafka_t
    *`.

    The client puts its events on its main queue. Raises UsageProblem, which names the property that
    librdkafka does not accept, and never a secret's value.
    """
    library = load()
    conf = library.rd_kafka_conf_new()
    buffer = c.create_string_buffer(512)
    for name, value in {**config, **hard, "log.queue": "true"}.items():
        if library.rd_kafka_conf_set(conf, name.encode(), str(value).encode(), buffer, len(buffer)):
            library.rd_kafka_conf_destroy(conf)
            reason = "" if is_secret(name) else f": {buffer.value.decode(errors='replace')}"
            raise UsageProblem(f"Kafka client setting {name} was not accepted{reason}.")
    library.rd_kafka_conf_set_events(conf, EVENT_DELIVERY | EVENT_LOG | EVENT_ERROR)
    library.rd_kafka_conf_set_throttle_cb(conf, _record_throttle_callback)
    handle = library.rd_kafka_new(kind, conf, buffer, len(buffer))
    if not handle:
        library.rd_kafka_conf_destroy(conf)
        reason = buffer.value.decode(errors="replace")
        for name, value in config.items():
            if is_secret(name) and value:
                reason = reason.replace(str(value), "***")
        raise UsageProblem(
            f"The Kafka client could not be set up: {reason}.",
            hint="Correct the setting that it names, in the file of --kafka-config.",
        )
    main_queue = library.rd_kafka_queue_get_main(handle)
    library.rd_kafka_set_log_queue(handle, main_queue)
    library.rd_kafka_queue_destroy(main_queue)
    _throttled_until.pop(int(handle), None)  # an earlier client may have had this address
    return int(handle)


def silent_since(handle: int, progress_s: float) -> float:
    """Return since when (monotonic seconds) a client has been silent for no known reason.

    `progress_s` is when it last made progress (monotonic seconds). Brokers that throttle a client delay their
    responses, which `drain_events` records. That excuses at most THROTTLED_S of silence, since a quota below
    the size of a batch never lets the batch pass.
    """
    return min(max(progress_s, _throttled_until.get(handle, 0.0)), progress_s + THROTTLED_S)


def delays() -> list[str]:
    """Return the causes that delay the clients of this process, one sentence each."""
    present_s = time.monotonic()
    return [text for text, until in _delays.items() if present_s < until]


def connect(handle: int, wait_ms: int = 1000) -> None:
    """Let a client find the cluster's brokers. Gives up after `wait_ms`, and raises nothing."""
    library, response = load(), c.c_void_p()
    if not library.rd_kafka_metadata(handle, 0, None, c.byref(response), wait_ms):
        library.rd_kafka_metadata_destroy(response)


def drain_events(handle: int, wait_ms: int = 0) -> list[tuple[int, str]]:
    """Take the client's events since the last call, and wait for the first one at most `wait_ms`.

    Returns (error code, text) of each error and failed delivery, in order. Log lines are dropped.
    """
    library = load()
    main_queue = library.rd_kafka_queue_get_main(handle)
    errors: list[tuple[int, str]] = []
    try:
        while event := library.rd_kafka_queue_poll(main_queue, wait_ms):
            wait_ms = 0
            kind = library.rd_kafka_event_type(event)
            if kind == EVENT_ERROR:
                text = library.rd_kafka_event_error_string(event) or b""
                errors.append((int(library.rd_kafka_event_error(event)), text.decode(errors="replace")))
                if errors[-1][0] == _ALL_BROKERS_DOWN:
                    _delays[_UNANSWERED] = time.monotonic() + _REPORTED_S
            while kind == EVENT_DELIVERY and (address := library.rd_kafka_event_message_next(event)):
                if code := int(Message.from_address(address).err):
                    errors.append((code, library.rd_kafka_err2str(code).decode()))
            library.rd_kafka_event_destroy(event)
    finally:
        library.rd_kafka_queue_destroy(main_queue)
    return errors


def take_error(error: int) -> tuple[int, str]:
    """Return code and text of an `rd_kafka_error_t *`, and free it."""
    library = load()
    try:
        text = (library.rd_kafka_error_string(error) or b"").decode(errors="replace")
        return int(library.rd_kafka_error_code(error)), text
    finally:
        library.rd_kafka_error_destroy(error)
