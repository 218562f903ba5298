"""What a drill or a verify chose, compared and left out, for the statement about it.

A run fills in its observations while it works, so a run that fails leaves what it did until then.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lakebackup.plan.topics.saved import digest_of
from lakebackup.rows.base import CHANGES, QUEUES, SNAPSHOT, TOPICS
from lakebackup.rows.digest import Digest
from lakebackup.rules.times import format_ts
from lakebackup.signing.statement import Item, Omission, Query
from lakebackup.sql_engine import RAW, RecordedQuery, recording
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.query.words import span
from lakebackup_jobs.upkeep.trial import Trial

CheckMode = Literal["stat", "hash", "decode", "restore"]
_HASHED = "The existence, size and SHA-256 of each stored file, with those in the catalog."
_COMPARED: Mapping[CheckMode, str] = {
    "stat": "The existence and size of each stored file, with those in the catalog.",
    "hash": _HASHED,
    "decode": _HASHED,
    "restore": _HASHED,
}
# What decoding adds, by the kind of source.
_DECODED = {
    TOPICS: " Each record was decoded, and their number compared.",
    CHANGES: " Each change was decoded, and their number compared.",
    QUEUES: " Each message was decoded, and their number compared.",
    SNAPSHOT: " Files that share an object were compared one by one.",
}
#: The most names of a list in a statement, which also has the count of all.
MOST_NAMES = 20


@dataclass(slots=True)
class ObservedTrial:
    """How far a trial restore came. `trial`: None until it is planned; `queries`: those that planned it."""

    trial: Trial | None = None
    queries: Sequence[RecordedQuery] = ()
    is_compared: bool = False

    def plan(self, trial: Trial) -> None:
        """Plan a trial, if it is not planned yet. Raises as `Trial.amount`."""
        with recording() as queries:
            _ = trial.amount
        self.trial, self.queries = trial, tuple(queries)


class Observations:
    """What a run did so far. `items`: what it restored or verified; `not_done`: what it left out."""

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.not_done: list[Omission] = []
        #: The SHA-256 of each SQL text that ran -> the text.
        self.statements: dict[str, str] = {}
        self._reader: CatalogReader | None = None

    def reads(self, reader: CatalogReader) -> None:
        """Note the reader with which the run chooses what to do."""
        self._reader = reader

    @property
    def versions(self) -> dict[str, int | None]:
        """The Delta version of each table that the run's own reader has read."""
        return _versions(self._reader) if self._reader else {}

    def queries(self) -> tuple[Query, ...]:
        """Return the statements that the run's own reader has run."""
        return self._recorded(self._reader.queries if self._reader else ())

    def leave_out(self, kind: str, text: str, names: Collection[str] | None = None) -> None:
        """Note something that is not done. `names`: what is left out; an empty collection notes nothing."""
        if names is None:
            self.not_done.append(Omission(kind=kind, text=text))
        elif names:
            first_names = tuple(sorted(names)[:MOST_NAMES])
            self.not_done.append(Omission(kind=kind, text=text, count=len(names), names=first_names))

    def leave_out_texts(self, kind: str, texts: Iterable[str]) -> None:
        """Note sentences about what is not done, each once."""
        known_texts = {omission.text for omission in self.not_done}
        for text in texts:
            if text not in known_texts:
                self.leave_out(kind, text)

    def add_trial(
        self,
        row: Mapping[str, Any],
        observed: ObservedTrial,
        reader: CatalogReader,
        outcome: Mapping[str, Any],
    ) -> None:
        """Add a trial restore of a row of drill_targets or trial_targets.

        `outcome`: some of the fields `drill_id`, `outcome`, `detail`, `files`, `bytes`, `entries` and
        `real_ms` of its item.
        """
        backup = reader.first_row("show_backup", backup_id=row["backup_id"]) or {}
        names = row["scopes"].split(",")
        trial, planned = observed.trial, dict[str, Any]()
        if trial is not None:
            versions = dict[str, int | None]()
            for part in trial.parts:
                versions |= _versions(part.reader)
            planned = {
                "to_time": None if trial.to_ms is None else format_ts(trial.to_ms),
                "rows_digest": digest_of(*(part.plan.file for part in trial.parts)),
                "versions": versions,
                "queries": self._recorded(observed.queries),
            }
            self.leave_out_texts("comparison", trial.NOT_COMPARED)
        self.items.append(
            Item(
                source=row["source"],
                kind=row["source_kind"],
                backup_id=row["backup_id"],
                backups=1,
                catalog_digest=str(backup.get("digest") or ""),
                scopes=len(names),
                scope_names=tuple(names[:MOST_NAMES]),
                compared=trial.COMPARED if trial and observed.is_compared else "Nothing was compared.",
                **planned,
                **outcome,
            )
        )

    def _recorded(self, queries: Iterable[RecordedQuery]) -> tuple[Query, ...]:
        recorded = []
        for query in queries:
            digest = hashlib.sha256(query.text.encode()).hexdigest()
            self.statements[digest] = query.text
            # Values such as dates become texts.
            parameters = json.loads(json.dumps(dict(query.parameters), default=str))
            recorded.append(
                Query(name=query.name, engine=query.engine, statement=digest, parameters=parameters)
            )
        return tuple(recorded)


def observe_targets(
    observations: Observations,
    reader: CatalogReader,
    targets: Sequence[Mapping[str, Any]],
    sources: Collection[str],
) -> None:
    """Note what a drill of these rows of drill_targets leaves out. `sources`: those that were requested."""
    scopes_by_source = dict[str, set[str]]()
    for row in reader.rows("sources_known"):
        scopes_by_source.setdefault(row["source"], set()).add(row["scope"])
    skipped_sources = scopes_by_source.keys() - {target["source"] for target in targets}
    unrequested = skipped_sources - set(sources) if sources else set()
    observations.leave_out("sources", "Sources that were not requested.", unrequested)
    observations.leave_out(
        "sources", "Sources without a restore point to drill.", skipped_sources - unrequested
    )
    for target in targets:
        source = target["source"]
        (points,) = reader.rows("drill_points", source=source)
        if (other_points := points["restore_points"] - 1) > 0:
            observations.not_done.append(
                Omission(
                    kind="restore points",
                    text=f"Other restore points of {source} were not restored.",
                    count=other_points,
                )
            )
        if (noun := {TOPICS: "Topics", SNAPSHOT: "Tables"}.get(target["source_kind"])) is not None:
            other_scopes = scopes_by_source[source] - {*target["scopes"].split(","), None}
            observations.leave_out(
                noun.lower(), f"{noun} of {source} that only its other backups have.", other_scopes
            )


def observe_check(
    observations: Observations, reader: CatalogReader, backup_ids: str, mode: CheckMode, grace_ms: int
) -> None:
    """Note the backups that a verify checks, as one item for each source, and what it leaves out.

    `backup_ids`: those that were requested; empty for all. `grace_ms`: the age from which an object that no
    backup names is a finding.
    """
    digests, counts, kinds = dict[str, Digest](), dict[str, int](), dict[str, str]()
    other_ids = set[str]()
    requested_ids = set(backup_ids.split(",")) if backup_ids else None
    for batch in reader.query("backups_to_check", backup_ids=""):
        for row in batch.to_pylist():
            source, backup_id = row["source"], row["backup_id"]
            if requested_ids is not None and backup_id not in requested_ids:
                other_ids.add(backup_id)
                continue
            kinds[source] = row["source_kind"]
            digests.setdefault(source, Digest()).add(f"{backup_id} {row['digest']}")
            counts[source] = counts.get(source, 0) + 1
    observations.items += [
        Item(
            source=source,
            kind=kinds[source],
            backups=counts[source],
            catalog_digest=digests[source].hex(),
            compared=_COMPARED[mode] + (_DECODED.get(kinds[source], "") if mode == "decode" else ""),
        )
        for source in sorted(digests)
    ]
    if mode == "stat":
        observations.leave_out("contents", "Files were not read, so their SHA-256 was not compared.")
    if mode != "decode":
        observations.leave_out("decode", "Records were not decoded.")
    if mode != "restore":
        observations.leave_out("restore", "Nothing was restored.")
    elif not backup_ids:
        observations.leave_out("restore", "Only the newest restore point of each topic was restored.")
    if backup_ids:
        observations.leave_out("orphans", "Files that no backup names were not looked for.")
    else:
        text = f"Files that no backup names are no finding in the first {span(grace_ms)}."
        observations.leave_out("orphans", text)
    observations.leave_out(
        "backups", "Backups that are deleted, not complete or of other programs are never checked."
    )
    observations.leave_out("backups", "Backups that were not requested.", other_ids)


def observe_limits(
    observations: Observations, *, encrypted: int, unlisted: Collection[str], recorded: bool
) -> None:
    """Note what a verify cannot do: decode `encrypted` files without their keys, look for files that no
    backup names in `unlisted` repositories, or record its findings."""
    if encrypted:
        text = "Encrypted files were not decoded, since there is no file of their keys."
        observations.not_done.append(Omission(kind="decode", text=text, count=encrypted))
    text = "Repositories in which files that no backup names were not looked for."
    observations.leave_out("orphans", text, unlisted)
    if not recorded:
        observations.leave_out("record", "Findings were not recorded: the catalog is not writable.")


def _versions(reader: CatalogReader) -> dict[str, int | None]:
    return {step.removeprefix(RAW): version for step, version in sorted(reader.pinned().items())}
