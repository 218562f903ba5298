"""Rebuilds a lost catalog from what is stored beside the backups: manifests, markers, the audit log.

Rows of data files go from the manifests' parts to the table inside Spark. The driver holds some manifests at
a time, and one row for each backup.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own documentation has it)

from lakebackup.errors import Damaged, LakebackupError, NotFound, Refused, UsageProblem
from lakebackup.recovery import audit_entries, imports, stored_text
from lakebackup.rows.backups import Backup, KeyRecipient
from lakebackup.rows.base import SNAPSHOT, State
from lakebackup.rows.digest import LANE_DIGITS, LANES, Digest
from lakebackup.rows.tables import ARROW_SCHEMAS, spark_columns
from lakebackup.rows.upkeep import Audit
from lakebackup.rules import layout
from lakebackup.signing.chain import Link
from lakebackup.signing.faults import NoLink
from lakebackup.signing.keys import TrustedKeys
from lakebackup.sql_engine.delta.table import open_table
from lakebackup.storage import Storage
from lakebackup.store import data_keys, signatures, translations
from lakebackup.store import manifest as sidecar
from lakebackup.store.audit_log import ROWS_IN_AUDIT, SET_STATE
from lakebackup.store.delta_append import LISTED, LISTED_BY, TornListings
from lakebackup.store.roots import destination_id, root_file
from lakebackup.store.tombstones import RemovalReader, prune_ids, read_prune
from lakebackup.store.writer import FOLDED, CatalogWriter

#: The audit log's action for a backup that a rebuild had to leave out.
SKIPPED_ACTION = "rebuild left out"
# This many manifests are read, checked and appended together.
_BATCH = 200
_READERS = 64
_FILLED = (
    "files", "positions", "scopes", "gaps", "groups", "group_commits", "schemas", "audit", "removals",
    "floors", "translations", "data_keys", *LISTED, *ROWS_IN_AUDIT.values(),
)  # fmt: skip
#: Writes the rows that only the data files of some backups hold: (writer, their manifests, transaction).
Derive = Callable[[CatalogWriter, "Sequence[sidecar.Manifest]", str], None]


@dataclass(slots=True)
class Rebuilt:
    """The result of a rebuild: how many backups of each state, files and audit entries it appended, and the
    reasons for what it left out."""

    states: dict[str, int] = field(default_factory=dict)
    files: int = 0
    audit: int = 0
    problems: list[str] = field(default_factory=list)


def rebuild(
    spark: SparkSession,
    destination: str,
    catalog: str | None = None,
    derive: Derive | None = None,
    progress: Callable[[int, int], None] = lambda _count, _total: None,
    confirm: Callable[[], None] = lambda: None,
    keys: TrustedKeys | None = None,
) -> Rebuilt:
    """Fill the empty or missing catalog of a destination from its sidecars and its audit log.

    `derive` adds the rows that only the data files hold. `progress` is called with the number of manifests
    that are read, and their total. `confirm` is called before the backups become visible, and raises an error
    if another process may have written to the catalog. `keys`: take only backups and deletions that one of
    these keys signed.

    A backup with the marker `deleted`, or that a prune deletes completely, becomes `deleted`. Any other
    without the marker `complete` becomes `unconfirmed`. A complete backup gets its last state from the audit
    log.

    A backup whose manifest is torn or disagrees with its parts is left out and named in `problems`. So is one
    of a snapshot that never came to exist, if another backup has its number. All others are appended.
    Snapshots after a number that is then missing become `unconfirmed`, since some of their files may be
    missing. So do all snapshots from a number on that two backups have. Nothing is visible before everything
    is appended.

    Raises Refused when the catalog holds backups, Busy when another process writes to it.
    """
    writer = CatalogWriter(spark, destination, catalog)
    writer.migrate()
    if _rows(writer, "backups"):
        raise Refused(
            f"The catalog at {writer.catalog_uri} holds backups already.",
            hint="Move its folder away and rebuild; or give another place with --catalog.",
        )
    for table in _FILLED:
        if _rows(writer, table):  # rows of a rebuild that did not finish
            writer.clear(table)
    return _Rebuild(spark, writer, derive, progress, confirm, keys).run()


def sources(storage: Storage) -> Iterator[str]:
    """The sources of which a destination holds at least one object that may belong to a backup."""
    for source in filter(None, map(layout.source_of, storage.folders())):
        if next(storage.list(layout.backups_folder(source)), None):
            yield source


def _rows(writer: CatalogWriter, table: str) -> bool:
    return bool(open_table(f"{writer.catalog_uri}/{table}").file_uris())


class _Rebuild:
    def __init__(
        self,
        spark: SparkSession,
        writer: CatalogWriter,
        derive: Derive | None,
        progress: Callable[[int, int], None],
        confirm: Callable[[], None],
        keys: TrustedKeys | None = None,
    ) -> None:
        self.spark, self.writer, self.storage, self.derive = spark, writer, writer.home, derive
        self.progress, self.confirm, self.manifests_read = progress, confirm, 0
        # A rebuild that did not finish may have committed the same rows, which are removed by now. A table
        # accepts each transaction only once, so the names of this run's transactions must be new.
        self.run_id = secrets.token_hex(4)
        self.result = Rebuilt()
        self.states: dict[str, State] = {}
        self.pruned_ids: set[str] = set()
        self.skipped: dict[str, str] = {}  # backup id -> reason
        self.keys = keys
        self.signed: dict[str, dict[str, Link]] = {}  # source -> path -> link

    def run(self) -> Rebuilt:
        self._audit()
        self._prunes()
        total = len(self.backup_keys)
        self.progress(0, total)
        manifests = self._manifests()
        backups: list[Backup] = []
        while batch := list(islice(manifests, _BATCH)):
            good = self._agreeing(batch)
            if not good:
                self.progress(self.manifests_read, total)
                continue
            if not backups:
                self._name_destination(good[0].backup.destination)
            transaction = f"rebuild-{self.run_id}-{good[0].backup.backup_id}"
            self._files(good, transaction)
            rows = [row for manifest in good for row in manifest.rows]
            self.writer.append([*rows, *self._key_recipients(good)], transaction)
            if self.derive:
                self.derive(self.writer, good, transaction)
            backups += [self._as_marked(m.backup) for m in good]
            self.progress(self.manifests_read, total)
        backups = self._resolved([*backups, *self._imports(backups)])
        for backup in backups:
            self.result.states[backup.state] = self.result.states.get(backup.state, 0) + 1
        self.result.problems += translations.rebuild(self.writer, self.run_id)
        self.writer.register_home()
        self.writer.append(self._skipped_entries(), f"rebuild-{self.run_id}-left-out")
        self.confirm()
        self.writer.append(backups, f"rebuild-{self.run_id}")
        for table in FOLDED:
            self.writer.fold(table)
        return self.result

    def _skipped_entries(self) -> list[Audit]:
        """A row of the audit log for each backup in `skipped`, so that the catalog knows of it.

        One that is left out because another backup has its number gets none, since it never came to exist.
        """
        entry = Audit(
            at=time.time_ns() // 1000, actor="catalog rebuild", action=SKIPPED_ACTION, subject="", detail=""
        )
        return [
            replace(entry, subject=backup_id, detail=json.dumps({"why": why}))
            for backup_id, why in sorted(self.skipped.items())
        ]

    def _imports(self, own: Sequence[Backup]) -> list[Backup]:
        """Append the rows of imports. Returns the imported backups, in the state that the audit log last gave
        them."""
        own_ids = {backup.backup_id for backup in own}
        imported, problems = imports.rebuild(self.spark, self.writer, self.run_id, own_ids)
        self.result.problems += problems
        self.result.files += sum(backup.files for backup in imported)
        return [replace(b, state=self.states.get(b.backup_id, b.state)) for b in imported]

    def _prunes(self) -> None:
        """Append the floors and removals of every prune, finished or not.

        The files of a prune whose tombstones are damaged count as present.
        """
        for name in prune_ids(self.writer.home):
            transaction = f"rebuild-{self.run_id}-{name}"
            try:
                prune = read_prune(self.writer.home, name)
                self._require_signed(prune.source, layout.prune_path(name))
                reader = RemovalReader(self.writer.home.uri, prune.chunks)
                chunks = range(len(prune.chunks))
                rows = reader.over(self.spark, chunks, spark_columns("removals"))
                self.writer.append_frame("removals", rows, transaction)
            except LakebackupError as error:
                self.result.problems.append(error.message)
                continue
            self.writer.append(prune.floors, transaction)
            self.pruned_ids.update(backup_id for backup_id, _ in prune.backups)

    def _audit(self) -> None:
        """Append the audit log's rows, and note the newest state that it gives to each backup."""
        if next(self.storage.list(f"{layout.AUDIT_FOLDER}/"), None) is None:
            return
        entries = audit_entries.read(self.spark, self.storage, self.keys)
        self.result.problems += entries.problems
        rows = entries.rows
        # Entries that earlier versions wrote lack the columns that were added later.
        valid_entries = rows.dropna(subset=["at", "actor", "action", "subject", "detail"])
        actions = {row["action"]: row["count"] for row in valid_entries.groupBy("action").count().collect()}
        self.result.audit = sum(actions.values())
        torn = rows.count() - self.result.audit
        if torn:
            self.result.problems.append(f"{layout.AUDIT_FOLDER}/: {torn} entries cannot be read.")
        self.writer.append_frame("audit", valid_entries.coalesce(1))
        if SET_STATE in actions:
            changes = valid_entries.where(F.col("action") == SET_STATE).groupBy("subject")
            state = F.get_json_object(F.max_by("detail", "at"), "$.state").alias("state")
            for row in changes.agg(state).collect():
                self.states[row["subject"]] = cast("State", row["state"])
        for action, table in ROWS_IN_AUDIT.items():
            if action in actions:
                # The entry of a command of that name holds the command's request, not a row.
                is_row = (F.col("action") == action) & F.get_json_object("detail", "$.request").isNull()
                parsed = F.from_json("detail", spark_columns(table)).alias("row")
                parsed_rows = valid_entries.where(is_row).select(parsed).select("row.*")
                required = [field.name for field in ARROW_SCHEMAS[table] if not field.nullable]
                table_rows = parsed_rows.dropna(subset=required)
                if unreadable := parsed_rows.count() - table_rows.count():
                    self.result.problems.append(
                        f"{layout.AUDIT_FOLDER}/: entries that are no rows of {table}: {unreadable}."
                    )
                self.writer.append_frame(table, table_rows.coalesce(1))

    def _manifests(self) -> Iterator[sidecar.Manifest]:
        """Every manifest that can be read, by source and time.

        A backup of a snapshot that never came to exist, and whose number another backup has by now, is left
        out. Otherwise the files of one would be taken for those of the other.
        """
        previous: sidecar.Manifest | None = None
        for manifest in self._readable():
            if previous and _same_number(previous.backup, manifest.backup):
                if not self._existed(previous.backup):
                    self._leave_out(previous.backup, manifest.backup)
                    previous = manifest
                    continue
                if not self._existed(manifest.backup):
                    self._leave_out(manifest.backup, previous.backup)
                    continue
            if previous:
                yield previous
            previous = manifest
        if previous:
            yield previous

    def _existed(self, backup: Backup) -> bool:
        return any(self._marked(backup, marker) for marker in ("complete", "deleted"))

    def _leave_out(self, backup: Backup, number_owner: Backup) -> None:
        self.result.problems.append(
            f"{layout.manifest_path(backup.source, backup.backup_id)}: its run was cut off before the backup "
            f"existed, and {number_owner.backup_id} has its number, {number_owner.number}."
        )

    @cached_property
    def backup_keys(self) -> list[tuple[str, str]]:
        """Source and id of what looks like a backup. Listed only once: that takes many requests."""
        return list(_find_backups(self.storage))

    def _readable(self) -> Iterator[sidecar.Manifest]:
        for number, (source, backup_id) in enumerate(self.backup_keys, 1):
            self.manifests_read = number
            path = layout.manifest_path(source, backup_id)
            try:
                manifest = sidecar.read_manifest(self.storage, path)
                self._require_signed(source, path)
                if (manifest.backup.source, manifest.backup.backup_id) != (source, backup_id):
                    raise Damaged(f"{path}: it is that of backup {manifest.backup.backup_id}.")
            except NotFound:
                continue  # the run ended before it wrote a manifest, so there was no backup
            except LakebackupError as error:
                self._skip(backup_id, error.message)
                continue
            yield manifest

    def _require_signed(self, source: str, path: str) -> None:
        """Raise Untrusted if keys are trusted and none of them signed an object as it is now."""
        if self.keys is None:
            return
        if source not in self.signed:
            self.signed[source], fault = signatures.signed_objects(self.storage, source, self.keys)
            if fault:
                self.result.problems.append(f"{fault.message} Nothing that was signed later is taken.")
        if path not in self.signed[source]:
            raise NoLink(f"{path} is not signed by a trusted key.")
        link = self.signed[source][path]
        signatures.require_subject(self.storage, link)
        if link.kind == "backup":
            signatures.require_rows(link, signatures.file_rows(self.storage, source, link.subject))

    def _agreeing(self, batch: Sequence[sidecar.Manifest]) -> list[sidecar.Manifest]:
        """The manifests whose parts add up to their totals. Deleted backups may have lost their parts."""
        sums = self._added_up(batch)
        torn = self._torn(batch)
        good = []
        for manifest in batch:
            backup = manifest.backup
            if backup.backup_id in torn:
                self._skip(backup.backup_id, torn[backup.backup_id])
                continue
            expected = (manifest.parts, backup.files, backup.bytes, backup.entries, backup.digest)
            actual = (self._parts(manifest), *sums.get(backup.backup_id, (0, 0, 0, Digest().hex())))
            if expected == actual or self._marked(backup, "deleted"):
                good.append(manifest)
                continue
            names = ("parts", "files", "bytes", "entries", "digest")
            differences = [
                f"{n} {a}, not {b}" for n, a, b in zip(names, actual, expected, strict=True) if a != b
            ]
            path = layout.manifest_path(backup.source, backup.backup_id)
            self._skip(backup.backup_id, f"{path}: its parts hold {'; '.join(differences)}.")
        return good

    def _skip(self, backup_id: str, reason: str) -> None:
        self.result.problems.append(reason)
        self.skipped[backup_id] = reason

    def _added_up(self, batch: Sequence[sidecar.Manifest]) -> dict[str, tuple[int, int, int, str]]:
        """Backup id -> the number of rows, the bytes, the entries and the digest of its parts."""
        lines = self._lines(batch)
        if lines is None:
            return {}
        hashed = F.sha2("value", 256)
        lanes = [
            F.sum(
                F.conv(F.substring(hashed, lane * LANE_DIGITS + 1, LANE_DIGITS), 16, 10).cast("decimal(38,0)")
            ).alias(f"lane{lane}")
            for lane in range(LANES)
        ]
        totals = [
            F.sum(F.get_json_object("value", f"$.{name}").try_cast("bigint")).alias(name)
            for name in ("bytes", "entries")
        ]
        sums = lines.groupBy("backup_id").agg(F.count("*").alias("files"), *totals, *lanes)
        totals_by_backup = {}
        for row in sums.collect():
            digest = Digest()
            digest.add_lanes(int(row[f"lane{lane}"]) for lane in range(LANES))
            totals_by_backup[row["backup_id"]] = (row["files"], row["bytes"], row["entries"], digest.hex())
        return totals_by_backup

    def _torn(self, batch: Sequence[sidecar.Manifest]) -> dict[str, str]:
        """Backup id -> what is wrong, of the backups whose listed rows are torn."""
        parts = {
            layout.parts_path(m.backup.source, m.backup.backup_id, task): m.backup.backup_id
            for m in batch
            if m.backup.source_kind in LISTED_BY and self._parts(m) == m.parts
            for task in range(m.parts)
        }
        if not parts:
            return {}
        job = TornListings(self.storage.uri, tuple(parts))
        problems = job.over(self.spark, range(len(parts)), "path STRING, problem STRING", _READERS)
        return {parts[row.path]: row.problem for row in problems.collect()}

    def _resolved(self, backups: list[Backup]) -> list[Backup]:
        """The backups, with those of snapshots unconfirmed that follow a missing number: it is unknown which
        files the missing backup added or dropped. The same holds from a number on that two backups have."""
        last_numbers: dict[str, int] = {}
        counts = Counter((b.source, b.number) for b in backups if b.source_kind == SNAPSHOT)
        for source, number in sorted(counts):
            if number == last_numbers.get(source, 0) + 1 and counts[source, number] == 1:
                last_numbers[source] = number
        for source in {b.source for b in backups if b.source_kind == SNAPSHOT}:
            last_number = last_numbers.setdefault(source, 0)
            if any(b.source == source and b.number > last_number for b in backups):
                fault = "exists twice" if counts[source, last_number + 1] else "is missing"
                self.result.problems.append(
                    f"Backup number {last_number + 1} of {source} {fault}: which of its files later ones "
                    "have is not known, so they count as unconfirmed."
                )
        return [
            replace(backup, state="unconfirmed")
            if backup.source_kind == SNAPSHOT
            and backup.state == "complete"
            and backup.number > last_numbers[backup.source]
            else backup
            for backup in backups
        ]

    def _files(self, good: Sequence[sidecar.Manifest], transaction: str) -> None:
        with_parts = [manifest for manifest in good if self._parts(manifest) == manifest.parts]
        doubtful = {m.backup.backup_id for m in with_parts if not self._existed(m.backup)}
        self.writer.append_parts(with_parts, transaction, doubtful=doubtful)
        self.result.files += sum(manifest.backup.files for manifest in with_parts)

    def _key_recipients(self, good: Sequence[sidecar.Manifest]) -> Iterator[KeyRecipient]:
        """Yield the rows of the backups' data keys, as they are wrapped now."""
        for manifest in good:
            source, backup_id = manifest.backup.source, manifest.backup.backup_id
            for key_id in data_keys.key_ids(self.storage, source, backup_id):
                try:
                    yield from data_keys.read(self.storage, source, backup_id, key_id).rows
                except LakebackupError as error:
                    self.result.problems.append(error.message)

    def _parts(self, manifest: sidecar.Manifest) -> int:
        folder = layout.parts_folder(manifest.backup.source, manifest.backup.backup_id)
        return sum(1 for _ in self.storage.list(folder))

    def _lines(self, batch: Iterable[sidecar.Manifest]) -> DataFrame | None:
        """The lines of the parts of some backups, as columns value and backup_id; None: no part exists."""
        folders = [layout.parts_folder(m.backup.source, m.backup.backup_id) for m in batch]
        folders = [folder for folder in folders if next(self.storage.list(folder), None)]
        if not folders:
            return None
        lines = stored_text.lines(self.spark, self.storage, folders)
        backup_id = F.regexp_extract("path", "^.*/backups/([^/]+)/parts/", 1)
        return lines.select("value", backup_id.alias("backup_id"))

    def _as_marked(self, backup: Backup) -> Backup:
        state: State = "unconfirmed"
        if backup.backup_id in self.pruned_ids or self._marked(backup, "deleted"):
            state = "deleted"
        elif self._marked(backup, "complete"):
            state = self.states.get(backup.backup_id, backup.state)
        return replace(backup, state=state)

    def _marked(self, backup: Backup, marker: str) -> bool:
        if self.keys is not None:
            # Anybody can write or delete a marker. A backup is signed when it exists, and so is its deletion.
            return marker == "complete" or backup.backup_id in self.pruned_ids
        path = f"{layout.backup_folder(backup.source, backup.backup_id)}{marker}"
        return self.storage.exists(path)

    def _name_destination(self, name: str) -> None:
        """Restore the destination's id from the backups' rows if its own file was lost too."""
        try:
            destination_id(self.storage, create=False)
        except NotFound:
            self.storage.put(layout.ROOT_FILE, root_file(self.storage, name).encode(), if_absent=True)


def _same_number(first: Backup, second: Backup) -> bool:
    return (first.source, first.number) == (second.source, second.number) and first.source_kind == SNAPSHOT


def _find_backups(storage: Storage) -> Iterator[tuple[str, str]]:
    """Source and id of everything that looks like a backup's sidecar."""
    for source in sources(storage):
        for backup_id in storage.folders(layout.backups_folder(source)):
            with suppress(UsageProblem):
                yield source, layout.check_backup_id(backup_id)
