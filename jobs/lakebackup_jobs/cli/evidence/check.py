"""`lakebackup evidence check`: check evidence with a public key alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from os import strerror
from pathlib import Path
from typing import Any

from lakebackup.errors import NotFound
from lakebackup.rules.times import format_ts, parse_time
from lakebackup.signing import inclusion
from lakebackup.signing.envelope import MAX_BYTES
from lakebackup.signing.faults import TooOld, Untrusted
from lakebackup.signing.keys import TrustedKeys, load_public, short_id
from lakebackup.signing.statement import PAGE_SUFFIX, Attestation, Evidence
from lakebackup.signing.statement import check as check_statement
from lakebackup_jobs.cli.flags.options import argument, option
from lakebackup_jobs.cli.flags.values import now_ms
from lakebackup_jobs.cli.verb import Call, verb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _instant(text: str) -> int:
    """Parse a time to ms since 1970 UTC, without the time zone of a policy, which is in a repository."""
    return parse_time(text, now_ms())


@verb()
def check(
    call: Call,
    file: Path = argument(
        "FILE", "A file that `drill --evidence`, `verify --evidence` or `evidence prove` wrote.", ...
    ),
    public_key: list[Path] = option("--public-key FILE", "A public key that you trust; repeatable.", ...),
    retired_key: list[Path] | None = option(
        "--retired-key FILE", "A public key that you do not trust any more; repeatable."
    ),
    earliest_ms: int | None = option(
        "--after TIME",
        "The evidence must be of a later time: 2026-11-21T14:05Z, yesterday, -2d. Without a zone it is UTC.",
        parser=_instant,
    ),
) -> None:
    """Check who signed evidence, and that neither it nor its page was changed. Print what it attests.

    This needs the public key of the signer, and no repository, network or Java. The page FILE.html is
    compared if it is there. Exit code 7: no trusted key vouches for the file, or a part of it contradicts
    another. The error names the first fault; --json has its kind, such as NotSigned, UnknownKey,
    WrongSignature, PayloadChanged or RetiredKey.

    Examples:
        lakebackup evidence check drill.json --public-key evidence.key.pub
        lakebackup evidence check drill.json --public-key evidence.key.pub --after 2026-11-01 --json
    """
    keys = TrustedKeys.of(map(load_public, public_key), map(load_public, retired_key or ()))
    content = _read(file)
    try:
        if inclusion.is_proof(content):
            _check_proof(call, file, inclusion.check(content, keys), earliest_ms)
            return
    except Untrusted as untrusted:
        raise _naming(file, untrusted) from None
    page_file = file.with_name(f"{file.name}{PAGE_SUFFIX}")
    page = _read(page_file) if page_file.exists() else None
    earliest = None if earliest_ms is None else _EPOCH + timedelta(milliseconds=earliest_ms)
    try:
        attestation, fault = check_statement(content, keys, page, earliest=earliest)
    except Untrusted as untrusted:
        raise _naming(file, untrusted) from None
    call.show(
        {
            "file": str(file),
            "signed_by": attestation.signer.key_id,
            "fault": None if fault is None else type(fault).__name__,
            "page": attestation.page if fault is None else "unknown",
            "attested": attestation.evidence.model_dump(mode="json"),
        },
        list(_sentences(file, attestation)),
    )
    if fault is not None:
        raise _naming(file, fault)


def _check_proof(call: Call, file: Path, proof: inclusion.Inclusion, earliest_ms: int | None) -> None:
    link = proof.link
    if earliest_ms is not None and link.signed_at < earliest_ms * 1000:
        raise TooOld(
            f"Backup {link.subject} was signed at {format_ts(link.signed_at // 1000)}.",
            hint="Give an earlier --after, or get a proof of a later backup.",
        )
    values = {"file": str(file), "signed_by": proof.signer.key_id, "fault": None}
    key, row = short_id(proof.signer.key_id), proof.row
    backup = f"backup {link.subject} of {link.source} at {format_ts(link.signed_at // 1000)}"
    size, sha256 = row.get("bytes"), row.get("sha256")
    sentences = [
        f"The key {key} signed {backup}.",
        f"One of its {link.rows:,} files: {row.get('path')}, {size} bytes, SHA-256 {sha256}.",
    ]
    call.show({**values, "proved": {"row": row, "link": asdict(link)}}, sentences)


def _naming(file: Path, fault: Untrusted) -> Untrusted:
    """Return the fault with the file in front of its message."""
    return type(fault)(f"{file}: {fault.message}", hint=fault.hint)


def _read(file: Path) -> bytes:
    try:
        with file.open("rb") as stream:
            return stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise NotFound(
            f"{file} cannot be read: {strerror(error.errno or 0)}.",
            hint="Name a file that `drill --evidence` or `verify --evidence` wrote.",
        ) from None


def _sentences(file: Path, attestation: Attestation) -> Iterator[str]:
    evidence = attestation.evidence
    yield (
        f"The key {short_id(attestation.signer.key_id)} signed {file}. It attests a {evidence.command} that "
        f"ended as {evidence.outcome} (exit code {evidence.exit_code})."
    )
    yield (
        f"Run by {evidence.account} on {evidence.host} with {evidence.program} {evidence.version}, from "
        f"{evidence.started.isoformat()} to {evidence.finished.isoformat()}, on {evidence.repository}."
    )
    if evidence.error:
        yield f"Error: {evidence.error}"
    yield from _item_sentences(evidence)
    for finding in evidence.findings:
        fields = (f"{name} {value}" for name, value in finding.items() if value is not None)
        yield f"Finding: {', '.join(fields)}"
    for omission in evidence.not_done:
        names = f": {', '.join(omission.names)}" if omission.names else ""
        count = "" if omission.count is None else f" ({omission.count:,}{names})"
        yield f"Not done: {omission.text.removesuffix('.')}{count}."
    if attestation.page == "absent":
        yield f"There is no page {file.name}{PAGE_SUFFIX} beside it to compare."


def _item_sentences(evidence: Evidence) -> Iterator[str]:
    for item in evidence.items:
        details: list[Any] = [
            f"{item.backups:,} backups" if item.backup_id is None else f"backup {item.backup_id}",
            item.to_time and f"to {item.to_time}",
            item.outcome,
            item.detail,
        ]
        yield f"{item.source}: {', '.join(filter(None, details))}. Compared: {item.compared}"
