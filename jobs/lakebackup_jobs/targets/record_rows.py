"""The records of a restore as rows of a file.

Rows of text files hold keys and values as text if they are UTF-8, else in base64; the encoding has a column
of its own. Typed rows hold the bytes. Keys and values that a schema of the registry decodes are added as
JSON.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebackup.rules.schema_ids import Part
from lakebackup_jobs.kafka.format.arrow import RECORD, to_arrow
from lakebackup_jobs.kafka.format.read_records import text_or_hex
from lakebackup_jobs.kafka.format.records import Columns, select_records
from lakebackup_jobs.kafka.format.values import Decoder

_IDENTITY = [
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("ts", pa.int64()),
]
# Keys and values that a schema decoded.
_DECODED = [pa.field("key_json", pa.string()), pa.field("value_json", pa.string())]
#: The columns of CSV and JSON. `ts` is in ms since 1970 UTC; -1: none. `…_encoding` is `text` or `base64`; it
#: is null for a null key or value. `headers` is JSON.
TEXT_ROWS = pa.schema(
    [
        *_IDENTITY,
        pa.field("key", pa.string()),
        pa.field("key_encoding", pa.string()),
        pa.field("value", pa.string()),
        pa.field("value_encoding", pa.string()),
        *_DECODED,
        pa.field("headers", pa.string()),
    ]
)
#: The columns of Parquet.
TYPED_ROWS = pa.schema(
    [*_IDENTITY, RECORD.field("key"), RECORD.field("value"), *_DECODED, RECORD.field("headers")]
)
#: The columns of TEXT_ROWS that are JSON, without line ends.
JSON_COLUMNS = ("key_json", "value_json", "headers")


@dataclass(frozen=True, slots=True)
class RowMaker:
    """Converts records of data files to rows. `targets` maps a source topic to its name in the file.

    Only records with a time (ms) in `(from_ts, to_ts]` become rows. `decoder` is None if the backups hold no
    schemas. `typed` chooses TYPED_ROWS.
    """

    targets: dict[str, str]
    from_ts: int | None
    to_ts: int | None
    decoder: Decoder | None
    typed: bool

    @property
    def schema(self) -> pa.Schema:
        return TYPED_ROWS if self.typed else TEXT_ROWS

    def rows(self, scope: str, block: Columns) -> pa.RecordBatch | None:
        """Return the rows of a block's records, in order; None when none of them is in the time span."""
        in_time = select_records(block, self.from_ts, self.to_ts)
        if not len(in_time.rows):
            return None
        records = to_arrow(in_time)
        key, value, headers = (records.column(name) for name in ("key", "value", "headers"))
        decoded = [self._decoded("key", records, scope), self._decoded("value", records, scope)]
        identity = [
            pa.repeat(pa.scalar(self.targets[scope]), len(records)),
            *(records.column(name) for name in ("partition", "offset", "timestamp")),
        ]
        columns = (
            [*identity, key, value, *decoded, headers]
            if self.typed
            else [*identity, *_encoded(key), *_encoded(value), *decoded, _headers(headers)]
        )
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _decoded(self, part: Part, records: pa.RecordBatch, scope: str) -> pa.Array:
        """Return the keys or the values as JSON. It is null where they have no schema id, or where the schema
        cannot decode them."""
        if self.decoder is None:
            return pa.nulls(len(records), pa.string())
        excluded = _named_by_header(records.column("headers"), f"__{part}_schema_id")
        texts = [
            None if row in excluded else self.decoder.decode(data, scope, part)[0]
            for row, data in enumerate(records.column(part).to_pylist())
        ]
        # JSON strings contain no raw line ends, so any line end is only white space.
        return pa.array([text and text.replace("\n", " ").replace("\r", " ") for text in texts], pa.string())


def _encoded(data: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the bytes as text or base64, and the encoding of each."""
    try:
        texts = data.cast(pa.string())
    except pa.ArrowInvalid:
        pairs = [(None, None) if piece is None else _text_or_base64(piece) for piece in data.to_pylist()]
        texts, encodings = zip(*pairs, strict=True)
        return pa.array(texts, pa.string()), pa.array(encodings, pa.string())
    return texts, pc.if_else(texts.is_valid(), pa.scalar("text"), pa.scalar(None, pa.string()))


def _text_or_base64(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _headers(headers: Any) -> pa.Array:
    """Return the headers of each record as JSON: a list of pairs. A value that is not UTF-8 is an object with
    its bytes in hex."""
    if not len(headers.flatten()):
        return pa.repeat(pa.scalar("[]"), len(headers))
    texts = []
    for pairs in headers.to_pylist():
        json_pairs = [
            [pair["key"], None if pair["value"] is None else text_or_hex(pair["value"])] for pair in pairs
        ]
        texts.append(json.dumps(json_pairs, ensure_ascii=False))
    return pa.array(texts, pa.string())


def _named_by_header(headers: Any, name: str) -> set[int]:
    """Return the numbers of the rows with a header that names their schema. Their bytes do not begin with its
    id."""
    is_named = pc.equal(headers.flatten().field("key"), name)
    return set(pc.list_parent_indices(headers).filter(is_named).to_pylist())
