"""Evidence as a drill writes it, and ways to tamper with its file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable
from typing import Any

from lakebackup.signing.keys import SigningKey
from lakebackup.signing.statement import UNSIGNED, Evidence, attest

PAGE = b"<!DOCTYPE html><p>Evidence</p>"
Fields = dict[str, Any]


def evidence_of(key: SigningKey | None, **changes: Any) -> Evidence:
    """Evidence of a drill of two sources. `changes`: other values of its fields."""
    items = [
        {"source": source, "kind": "kafka", "backup_id": "b1", "backups": 1, "catalog_digest": digest * 60,
         "compared": "Each record.", "outcome": "ok", "files": 2, "bytes": 10, "entries": 3}
        for source, digest in (("prod", "a"), ("test", "b"))
    ]  # fmt: skip
    values: dict[str, Any] = {
        "integrity": UNSIGNED if key is None else f"signed with {key.key_id}",
        "key_id": key and key.key_id, "command": "drill", "program": "lakebackup", "version": "1",
        "host": "lab", "account": "backup", "repository": "/backups", "request": {"seed": 1},
        "started": "2026-11-21T14:00:00+00:00", "finished": "2026-11-21T14:05:00+00:00", "outcome": "ok",
        "exit_code": 0, "error": None, "counts": {"drills": 2}, "items": items, "findings": [],
        "not_done": [{"kind": "sources", "text": "Not requested.", "count": 1, "names": ["other"]}],
        "queries": [], "versions": {"backups": 3}, "statements": {},
    }  # fmt: skip
    return Evidence.model_validate({**values, **changes})


def statement_file(key: SigningKey | None, **changes: Any) -> bytes:
    """The file of a statement, signed if there is a key."""
    return attest(evidence_of(key, **changes), PAGE, "drill.json.html", key).to_bytes()


def fields_of(file: bytes) -> Fields:
    fields: Fields = json.loads(file)
    return fields


def with_fields(file: bytes, **changes: Any) -> bytes:
    """The file with other fields of its envelope."""
    return json.dumps({**fields_of(file), **changes}).encode()


def payload_of(file: bytes) -> bytes:
    return base64.b64decode(fields_of(file)["payload"])


def with_payload(file: bytes, payload: bytes, *, own_digest: bool) -> bytes:
    """The file with another payload. `own_digest`: with its SHA-256, as a forger would write it."""
    digest = hashlib.sha256(payload).hexdigest() if own_digest else fields_of(file)["payloadSha256"]
    return with_fields(file, payload=base64.b64encode(payload).decode(), payloadSha256=digest)


def with_statement(file: bytes, change: Callable[[Fields], None], *, own_digest: bool = True) -> bytes:
    """The file with a changed statement under the old signature."""
    statement = json.loads(payload_of(file))
    change(statement)
    return with_payload(file, json.dumps(statement).encode(), own_digest=own_digest)
