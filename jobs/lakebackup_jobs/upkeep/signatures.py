"""Check who signed the backups of a repository, with public keys alone.

For each source:

1. Follow its chain of signatures, and compare it with a checkpoint if there is one.
2. Compare each signed object with its SHA-256 (manifests of backups, records of deletions), and the rows
   beside a manifest with the signed root.
3. Compare the catalog with the signed manifests, and with the rows that signed objects beside them list.
4. Look for backups and deletions that nobody signed.

Before that, do the same for the audit log (see `signed_audit`).

The first fault of each source is a finding. No data file is read: `files` has their SHA-256, which
`lakebackup verify` compares.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from lakebackup.errors import Damaged, NotFound
from lakebackup.recovery.rebuild import sources
from lakebackup.requests import Request
from lakebackup.rows.backups import Backup, DataFile
from lakebackup.rows.base import COUNTING
from lakebackup.rows.tables import TABLES, json_line
from lakebackup.rules import layout
from lakebackup.rules.layout import AUDIT_FOLDER
from lakebackup.signing import chain
from lakebackup.signing.chain import Checkpoint, Link
from lakebackup.signing.faults import NoLink, RowsChanged, SubjectChanged, SubjectMissing, Untrusted
from lakebackup.signing.keys import PublicKey, TrustedKeys
from lakebackup.signing.set_hash import NO_ROWS, SetHash
from lakebackup.sql_engine import EngineChoice
from lakebackup.store import manifest as sidecar
from lakebackup.store import signatures, tombstones
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.planning import plan_on_engine
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.upkeep import signed_rows
from lakebackup_jobs.upkeep.signed_audit import AuditCheck
from lakebackup_jobs.upkeep.signed_rows import IN_MANIFESTS

_HINT = "Compare the repository with another copy, and find out who could write to it."


@dataclass(frozen=True, slots=True)
class SignedBackup:
    """What is signed of a backup: its row, the hashes of its rows by the queries of `IN_MANIFESTS`, and the
    number of its parts."""

    backup: Backup
    sums: Mapping[str, bytes]
    parts: int


@dataclass(frozen=True, slots=True)
class SignaturesRequest(Request):
    """What to check. `keys`: the public keys that count. `checkpoint`: an earlier one to compare with."""

    keys: TrustedKeys
    checkpoint: Checkpoint | None = None
    engine: EngineChoice = "auto"


def run(
    request: SignaturesRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Check the signatures of all sources; returns what was checked, with the first fault of each source.

    `checkpoint` of the result: the newest links, if there is no fault. Raises NotFound: there is no catalog,
    or nothing is signed.
    """
    work = Workspace(request, "", reporter, spark)
    reader = work.current()
    in_checkpoint = request.checkpoint.links if request.checkpoint else {}
    names = sorted({*sources(work.storage), *in_checkpoint} - {AUDIT_FOLDER})
    work.reporter.wait("checking the signatures of the audit log")
    audit = AuditCheck(work.storage, reader, request.keys, request.checkpoint)
    findings = _faults(AUDIT_FOLDER, audit.run)
    results = [_Source(request, work, reader, name, audit.result.states).check() for name in names]
    findings += [finding for result in results for finding in result["findings"]]
    if not findings and not any(result["links"] for result in results):
        raise NotFound(
            f"No backup in {work.storage.uri} is signed.",
            hint="Set key_file under [signing] of lakebackup.toml where backups are made.",
        )
    newest = {r["source"]: (r["links"], r["newest"]) for r in results if r["links"]}
    if digests := audit.result.digests:
        newest[AUDIT_FOLDER] = max(digests), digests[max(digests)]
    signers = {key for row in results for key in row["signers"]} | {k.key_id for k in audit.result.signers}
    return work.timed(
        {
            "sources": [{name: row[name] for name in row if name != "findings"} for row in results],
            "links": sum(row["links"] for row in results),
            "backups": sum(row["backups"] for row in results),
            "unsigned": sum(row["unsigned"] for row in results),
            "audit_entries": audit.result.entries,
            "unsigned_audit_entries": audit.result.unsigned,
            "signers": sorted(signers),
            "findings": findings,
            "checkpoint": None if findings else Checkpoint(newest).to_bytes().decode(),
        }
    )


def require_signed(result: Mapping[str, Any]) -> None:
    """Raise Damaged, with the first fault, unless every signature is in order."""
    if findings := result["findings"]:
        suffix = f" {len(findings) - 1} more sources have faults." if len(findings) > 1 else ""
        raise Damaged(f"{findings[0]['text']}{suffix}", hint=findings[0]["hint"])


def _faults(source: str, check: Callable[[], None]) -> list[dict[str, Any]]:
    """Run a check. Returns its first fault as a finding, or none."""
    try:
        check()
    except Untrusted as fault:
        kind = type(fault).__name__
        return [{"source": source, "fault": kind, "text": fault.message, "hint": fault.hint}]
    return []


class _Source:
    """The check of one source. `states`: those that the audit log gives to each backup, by its id."""

    def __init__(
        self,
        request: SignaturesRequest,
        work: Workspace,
        reader: CatalogReader,
        name: str,
        states: Mapping[str, Collection[str]],
    ) -> None:
        self.request, self.work, self.reader, self.name = request, work, reader, name
        self.storage, self.states = work.storage, states
        self.digests: dict[int, str] = {}
        self.links: dict[str, Link] = {}
        self.signers: set[PublicKey] = set()
        self.first: Link | None = None
        self.signed: dict[str, SignedBackup] = {}  # by id
        self.rows: dict[str, Mapping[str, Any]] = {}  # the catalog's rows of backups, by id
        self.counting: dict[str, Mapping[str, Any]] = {}  # backups that restores use, by id
        self.unsigned = 0

    def check(self) -> dict[str, Any]:
        findings = _faults(self.name, self._check)
        count = max(self.digests, default=0)
        return {
            "source": self.name,
            "links": count,
            "newest": self.digests.get(count),
            "backups": len(self.signed),
            "unsigned": self.unsigned,
            "signers": sorted(key.key_id for key in self.signers),
            "findings": findings,
        }

    def _check(self) -> None:
        self._follow()
        self._objects()
        self._backups()
        self._rows()
        self._deletions()
        for backup_id in sorted(self.signed):
            self._require_state(backup_id)

    def _follow(self) -> None:
        self.work.reporter.wait(f"checking the signatures of {self.name}")
        for signed in chain.check(
            Link, self.name, signatures.links(self.storage, self.name), self.request.keys
        ):
            link = signed.link
            self.first = self.first or link
            self.digests[link.number] = link.digest
            self.links[link.path] = link
            self.signers.add(signed.signer)
        if self.request.checkpoint:
            self.request.checkpoint.compare(self.name, self.digests)

    def _objects(self) -> None:
        """Compare each signed object. Of an object that was signed repeatedly, the newest link counts."""
        rows = self.reader.rows("signed_backups", source=self.name)
        self.rows = {row["backup_id"]: row for row in rows}
        self.counting = {name: row for name, row in self.rows.items() if row["state"] in COUNTING}
        for backup in filter(None, signatures.read_ahead(self._object, self.links.values())):
            self.signed[backup.backup.backup_id] = backup

    def _object(self, link: Link) -> SignedBackup | None:
        """Compare a signed object. Returns what is signed of a backup; None for a deletion."""
        content = signatures.require_subject(self.storage, link)
        if link.kind != "backup":
            return None
        manifest = sidecar.parse_manifest(content, link.path)
        if (manifest.backup.source, manifest.backup.backup_id) != (self.name, link.subject):
            raise SubjectChanged(f"{self.name}, link {link.number}: it is of another backup.", hint=_HINT)
        if link.subject not in self.counting:  # the rows beside it may be gone
            return SignedBackup(manifest.backup, {}, manifest.parts)
        sums = {
            "signed_files": self._file_sums(link),
            "signed_positions": signed_rows.of(manifest.positions),
            "signed_scopes": signed_rows.of(manifest.scopes),
            "signed_gaps": signed_rows.of(manifest.gaps),
            "signed_groups": signed_rows.of(manifest.groups),
        }
        return SignedBackup(manifest.backup, sums, manifest.parts)

    def _file_sums(self, link: Link) -> bytes:
        """Compare the rows beside a manifest with the signed root. Returns their hash as a set, of the rows
        as this version writes them: an earlier one wrote fewer columns."""
        rows_hash = SetHash()

        def rows() -> Iterator[bytes]:
            for line in signatures.file_rows(self.storage, self.name, link.subject):
                with suppress(ValueError):  # then the root differs
                    rows_hash.add(json_line(sidecar.from_json(DataFile, line)).encode())
                yield line

        signatures.require_rows(link, rows())
        return rows_hash.sums

    def _backups(self) -> None:
        """Compare the rows of backups, and count those that are older than the chain."""
        for row in self.counting.values():
            signed = self.signed.get(row["backup_id"])
            if signed is None:
                self._require_older(row)
                continue
            for column, value in row.items():
                if column == "state":
                    continue
                signed_value = getattr(signed.backup, column)
                if value != signed_value:
                    raise RowsChanged(
                        f"{self.name}: the catalog has {column} {value!r} of backup {row['backup_id']}, and "
                        f"its signed manifest has {signed_value!r}.",
                        hint=_HINT,
                    )

    def _require_state(self, backup_id: str) -> None:
        """Raise RowsChanged if the catalog lacks a signed backup, or if it does not count and the audit log
        does not say why."""
        state = self.rows[backup_id]["state"] if backup_id in self.rows else None
        if state in COUNTING or state in self.states.get(backup_id, ()):
            return
        text = f"says that backup {backup_id} is {state}" if state else f"does not have backup {backup_id}"
        raise RowsChanged(
            f"{self.name}: the catalog {text}. It is signed, and the audit log has no entry for this.",
            hint=_HINT,
        )

    def _require_older(self, row: Mapping[str, Any]) -> None:
        """Count a backup without a link. Raises NoLink if it is newer than the first link."""
        self.unsigned += 1
        if self.first and row["started_at"] > self.first.signed_at:
            raise NoLink(
                f"{self.name}: backup {row['backup_id']} is not signed, and it is newer than the first link "
                "of the chain.",
                hint="Find out which host made it, and whether it has a signing key.",
            )

    def _rows(self) -> None:
        """Compare the rows of the catalog with the signed manifests, and with what is listed beside them."""
        counting = {name: self.signed[name] for name in self.counting.keys() & self.signed.keys()}
        for query, kind in IN_MANIFESTS.items() if counting else ():
            in_catalog = self._on_engine(signed_rows.in_catalog, query, kind, self.name)
            in_manifests = {backup_id: signed.sums[query] for backup_id, signed in counting.items()}
            self._compare(query.removeprefix("signed_"), in_catalog, in_manifests)
        listed: defaultdict[str, list[SignedBackup]] = defaultdict(list)
        for signed in counting.values():
            for table in signed_rows.listed_tables(signed.backup.source_kind):
                listed[table].append(signed)
        for table, backups in listed.items():
            self._listed_rows(table, backups)

    def _listed_rows(self, table: str, backups: Sequence[SignedBackup]) -> None:
        """Compare the rows of a table with those that objects beside some backups list. Raises SubjectMissing
        and SubjectChanged for such an object, and RowsChanged."""
        backup_ids = sorted(signed.backup.backup_id for signed in backups)
        parts = tuple(
            (backup_id, layout.parts_path(self.name, backup_id, number))
            for backup_id in backup_ids
            for number in range(self.signed[backup_id].parts)
        )
        try:
            listed = self._on_engine(signed_rows.listed, table, parts, self.name)
        except NotFound as gone:
            raise SubjectMissing(f"{self.name}: {gone.message}", hint=_HINT) from None
        except Damaged as damaged:
            raise SubjectChanged(f"{self.name}: {damaged.message}", hint=_HINT) from None
        in_catalog = self._on_engine(
            signed_rows.in_catalog, f"listed_{table}", TABLES[table], self.name, "listed_by"
        )
        self._compare(table, in_catalog, dict.fromkeys(backup_ids, NO_ROWS) | listed)

    def _on_engine(self, hashes: Callable[..., dict[str, bytes]], *arguments: Any) -> dict[str, bytes]:
        """Call `hashes` with a reader on the engine that reads the tables, and the arguments."""
        return plan_on_engine(
            self.reader,
            self.request,
            self.work.session,
            self.work.reporter,
            lambda reader: hashes(reader, *arguments),
        )

    def _compare(self, table: str, in_catalog: Mapping[str, bytes], signed: Mapping[str, bytes]) -> None:
        """Compare the hashes of the catalog's rows with those that are signed, by the backup's id."""
        for backup_id, sums in sorted(signed.items()):
            if in_catalog.get(backup_id, NO_ROWS) != sums:
                raise RowsChanged(
                    f"{self.name}: the rows of backup {backup_id} in the table {table} are not those that "
                    "were signed.",
                    hint=_HINT,
                )

    def _deletions(self) -> None:
        """Raise NoLink for the record of a deletion that nobody signed since the chain began."""
        if self.first is None:
            return
        for prune_id in tombstones.prune_ids(self.storage):
            path = layout.prune_path(prune_id)
            if path in self.links:
                continue
            prune = tombstones.read_prune(self.storage, prune_id)
            if prune.source == self.name and prune.at > self.first.signed_at:
                raise NoLink(
                    f"{self.name}: deletion {prune_id} is not signed, and it is newer than the first link of "
                    "the chain.",
                    hint="Find out who deleted, and whether that host has a signing key.",
                )
