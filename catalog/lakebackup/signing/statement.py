"""Evidence of a drill or a verify: an in-toto Statement v1 in a DSSE envelope, and how to check it.

The subjects of a statement are the backups that were restored or verified. The digest of a subject is the
SHA-256 of the text `catalog_digest` of its item, which is what the catalog says of the backup's rows. So a
reader can compare the subjects with the items without the repository, and the items with the catalog of one.

A page for people lies beside the file. The statement has the page's SHA-256, so the signature vouches for the
page too, whichever version of lakebackup checks it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from lakebackup.signing.envelope import MAX_BYTES, Envelope, read, seal, strict_json, verify
from lakebackup.signing.faults import (
    Malformed,
    NotSigned,
    TooOld,
    Untrusted,
    WrongPage,
    WrongSubject,
    WrongType,
)
from lakebackup.signing.keys import PublicKey, SigningKey, TrustedKeys, short_id

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPES: Mapping[str, str] = {
    "drill": "urn:lakebackup:drill:v1",
    "verify": "urn:lakebackup:verify:v1",
}
#: The end of the name of a statement's page, which lies beside the statement.
PAGE_SUFFIX = ".html"
UNSIGNED = "integrity only: unsigned"
_FIELDS = frozenset({"_type", "subject", "predicateType", "predicate"})
_HINT = "Get the file from its author again."


class _Part(BaseModel):
    """A part of the predicate. Fields of a later version are ignored; the signature covers them all."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class Query(_Part):
    """A statement that ran. `statement`: the SHA-256 of its text, by which `statements` has the text."""

    name: str
    engine: str
    statement: str
    parameters: dict[str, Any]


class Item(_Part):
    """The backups of one source that were restored or verified.

    `backup_id`: the backup that was restored on trial; None for those that were verified. `drill_id`: its row
    of the view `drills`. `catalog_digest`: the digest of the rows of the
    backup; of several, the digest of their ids and digests. `rows_digest`: the digest of the planned files.
    `files`, `bytes` and `entries`: what the plan
    reads. `versions`: the Delta version of each table that was read.
    """

    source: str
    kind: str
    backup_id: str | None = None
    drill_id: str | None = None
    backups: int
    catalog_digest: str
    compared: str
    outcome: str | None = None
    detail: str | None = None
    to_time: str | None = None
    scopes: int | None = None
    scope_names: tuple[str, ...] = ()
    files: int | None = None
    bytes: int | None = None
    entries: int | None = None
    real_ms: int | None = None
    rows_digest: str | None = None
    versions: dict[str, int | None] = {}
    queries: tuple[Query, ...] = ()

    @property
    def name(self) -> str:
        """The name of the item's subject."""
        return self.source if self.backup_id is None else f"{self.source}/{self.backup_id}"


class Omission(_Part):
    """Something that was not done. `names`: the first of what was left out, and `count` of how many."""

    kind: str
    text: str
    count: int | None = None
    names: tuple[str, ...] = ()


class Page(_Part):
    """The page beside a statement."""

    name: str
    sha256: str


class Evidence(_Part):
    """What a statement attests: its predicate.

    `key_id`: the key that signs it; None for an unsigned one. `check_id`: of a verify, its rows of the view
    `checks`. `statements`: the SQL that ran, by the SHA-256 of each text.
    """

    integrity: str
    key_id: str | None
    command: Literal["drill", "verify"]
    program: str
    version: str
    host: str
    account: str
    repository: str
    request: dict[str, Any]
    check_id: str | None = None
    started: AwareDatetime
    finished: AwareDatetime
    outcome: Literal["ok", "different", "failed"]
    exit_code: int
    error: str | None
    counts: dict[str, int | float]
    items: tuple[Item, ...]
    findings: tuple[dict[str, Any], ...]
    not_done: tuple[Omission, ...]
    queries: tuple[Query, ...]
    versions: dict[str, int | None]
    statements: dict[str, str]
    page: Page | None = None

    def subjects(self) -> list[dict[str, Any]]:
        """Return the subjects of the statement. If nothing was chosen, the request is the subject."""
        texts = [(item.name, item.catalog_digest) for item in self.items]
        texts = texts or [("request", _json(self.request))]
        return [{"name": name, "digest": {"sha256": _sha256(text.encode())}} for name, text in texts]


@dataclass(frozen=True, slots=True)
class Attestation:
    """What a trusted key vouches for. `page`: whether the page beside the file is the statement's."""

    evidence: Evidence
    signer: PublicKey
    page: Literal["matches", "absent"]


def attest(evidence: Evidence, page: bytes, page_name: str, key: SigningKey | None) -> Envelope:
    """Return the envelope of a statement, signed if there is a key. `page`: the page to lie beside it."""
    evidence = evidence.model_copy(update={"page": Page(name=page_name, sha256=_sha256(page))})
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": evidence.subjects(),
        "predicateType": PREDICATE_TYPES[evidence.command],
        "predicate": evidence.model_dump(mode="json"),
    }
    return seal(PAYLOAD_TYPE, _json(statement).encode(), key)


def check(
    content: bytes, keys: TrustedKeys, page: bytes | None, *, earliest: datetime | None = None
) -> tuple[Attestation, Untrusted | None]:
    """Check the content of a statement's file with public keys alone.

    `page`: the page beside it, or None. `earliest`: the statement must be of a later time. Returns what the
    key vouches for, and the first fault in that, or None. Raises Untrusted if no trusted key vouches for
    anything.
    """
    if len(content) > MAX_BYTES:
        raise Malformed("The file is too large to be a statement.", hint=_HINT)
    envelope = read(content)
    try:
        signer = verify(envelope, PAYLOAD_TYPE, keys)
    except NotSigned:
        _require_no_signature(envelope.payload)
        raise
    evidence, subjects = _parse(envelope.payload)
    attestation = Attestation(evidence, signer, "absent" if page is None else "matches")
    return attestation, next(_faults(attestation, subjects, page, earliest), None)


def _require_no_signature(payload: bytes) -> None:
    """Raise NotSigned with more to say if a payload without a signature names the key that signed it."""
    evidence, _ = _parse(payload)
    if evidence.key_id is not None:
        raise NotSigned(
            f"The signature is missing: by its own words, the key {short_id(evidence.key_id)} signed it.",
            hint=_HINT,
        )


def _faults(
    attestation: Attestation, subjects: Any, page: bytes | None, earliest: datetime | None
) -> Iterator[Untrusted]:
    evidence = attestation.evidence
    if evidence.key_id != attestation.signer.key_id:
        yield WrongType("The statement names another key than the one that signed it.", hint=_HINT)
    if subjects != (expected := evidence.subjects()):
        yield WrongSubject(_wrong_subject(subjects, expected), hint=_HINT)
    if page is not None and (evidence.page is None or _sha256(page) != evidence.page.sha256):
        yield WrongPage(
            "The page beside the statement is not the one that was written with it.",
            hint="Read what this command prints, not the page.",
        )
    if evidence.finished < evidence.started:
        yield Malformed("The statement ends before it starts.", hint=_HINT)
    if earliest is not None and evidence.finished <= earliest:
        yield TooOld(
            f"The statement is of {evidence.finished.isoformat()}, not after {earliest.isoformat()}.",
            hint="It may be an earlier one under a new name: look at its time and its backups.",
        )


def _parse(payload: bytes) -> tuple[Evidence, Any]:
    """Return the evidence of a payload, and its subjects. Raises Malformed and WrongType."""
    statement = strict_json(payload, "The payload")
    if not isinstance(statement, dict) or statement.keys() != _FIELDS:
        raise Malformed("The payload is not a statement of in-toto.", hint=_HINT)
    types = statement["_type"], statement["predicateType"]
    predicate = statement["predicate"]
    command = predicate.get("command") if isinstance(predicate, dict) else None
    if types != (STATEMENT_TYPE, PREDICATE_TYPES.get(str(command))):
        raise WrongType(
            f"The statement is of the type {types[1]!r}, which this lakebackup does not know.",
            hint="Check it with the lakebackup that wrote it, or a newer one.",
        )
    try:
        return Evidence.model_validate(predicate), statement["subject"]
    except ValidationError as error:
        field = ".".join(map(str, error.errors()[0]["loc"]))
        raise Malformed(f"The predicate's field {field} is missing or wrong.", hint=_HINT) from None


def _wrong_subject(subjects: Any, expected: Sequence[Mapping[str, Any]]) -> str:
    """Say which subject is wrong, or that their number is."""
    if not isinstance(subjects, list) or len(subjects) != len(expected):
        return f"The statement does not have the {len(expected)} subjects that it describes."
    name = next(right["name"] for subject, right in zip(subjects, expected, strict=True) if subject != right)
    return f"The subject {name} does not have the digest of what the statement says about it."


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
