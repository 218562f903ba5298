"""Tests the data keys of backups with the identity of the settings, and wraps them for other recipients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from lakebackup.encryption.recipients import Identities
from lakebackup.errors import Damaged, LakebackupError, NotFound, UsageProblem
from lakebackup.requests import Request
from lakebackup.rows.backups import KeyRecipient
from lakebackup.rules import kinds
from lakebackup.store import data_keys
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.lifecycle.keyring import open_key, read_key
from lakebackup_jobs.lifecycle.progress import Reporter
from lakebackup_jobs.lifecycle.workspace import Workspace
from lakebackup_jobs.runtime.identities import MISSING_HINT, configured_identities

_THREADS = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeysRequest(Request):
    """The data keys of a source's backups, or of all backups. `recipients`: who can open them after a
    rotation."""

    source: str | None = None
    recipients: tuple[str, ...] = ()


def test(request: KeysRequest, *, reporter: Reporter) -> dict[str, Any]:
    """Open each data key, and return how many there are and those that cannot be opened.

    Raises UsageProblem (no identity is set), NotFound (no backup is encrypted), and Damaged, with the result,
    when keys cannot be opened.
    """
    work = Workspace(request, "", reporter)
    reader = work.current()
    rows = _rows(reader, request.source)
    identities = _identities()
    roots = reader.destinations()

    def problem_of(row: dict[str, Any]) -> str | None:
        try:
            open_key(identities, read_key(roots, row))
        except LakebackupError as error:
            return error.message
        return None

    problems = [
        {**{name: row[name] for name in ("source", "backup_id", "key_id")}, "problem": problem}
        for row, problem in zip(rows, _in_threads(problem_of, rows), strict=True)
        if problem
    ]
    result = {"keys": len(rows), "opened": len(rows) - len(problems), "problems": problems}
    if problems:
        first = problems[0]
        raise Damaged(
            f"{len(problems)} of {len(rows)} data keys cannot be opened; the first is that of backup "
            f"{first['backup_id']}: {first['problem']}",
            hint="These backups cannot be restored with this identity.",
        ).with_result(result)
    return result


def rotate(request: KeysRequest, *, reporter: Reporter) -> dict[str, Any]:
    """Wrap each data key for the recipients of the request, and return how many were wrapped.

    Data files and other repositories are not touched. A dry run only counts. Raises
    UsageProblem (no identity, no recipients), NotFound (no backup is encrypted), Damaged (a key cannot be
    opened; those before it are wrapped), Busy.
    """
    if not request.recipients:
        raise UsageProblem(
            "No recipient is set, so nobody could open the data keys.",
            hint="Set recipients under [encryption] of lakebackup.toml.",
        )
    work = Workspace(request, "", reporter)
    reader = work.current()
    all_rows = _rows(reader, request.source)
    rows = [row for row in all_rows if row["destination"] == work.destination]
    if len(rows) < len(all_rows):
        reporter.note(
            f"{len(all_rows) - len(rows)} data keys are in other repositories, and stay as they are"
        )
    identities = _identities()
    result = {"keys": len(rows), "recipients": list(request.recipients)}
    if request.dry_run:
        return {**result, "dry_run": True}
    roots = reader.destinations()

    def wrap(row: dict[str, Any]) -> list[KeyRecipient]:
        key_object = read_key(roots, row)
        key = open_key(identities, key_object)
        storage = roots.open(row["destination"])
        return data_keys.store(storage, key, request.recipients, created_at=key_object.created_at).rows

    writer = work.writer(in_process=True)
    writer.prepare()
    for source, group in groupby(rows, itemgetter("source")):
        with work.lease(f"source-{source}"):
            wrapped = [row for key_rows in _in_threads(wrap, list(group)) for row in key_rows]
            writer.append(wrapped)
    return work.timed(result)


def _identities() -> Identities:
    identities = configured_identities()
    if identities is None:
        raise UsageProblem("No identity is set.", hint=MISSING_HINT)
    return identities


def _rows(reader: CatalogReader, source: str | None) -> list[dict[str, Any]]:
    """The data keys, by source. Raises NotFound for an unknown source, and if there are none."""
    if source is not None:
        kinds.require_known(reader, source)
    rows = reader.rows("data_keys_to_check", backup_ids="")
    matching_rows = [row for row in rows if source in (None, row["source"])]
    if not matching_rows:
        raise NotFound(
            f"No backup{f' of {source}' if source else ''} is encrypted.",
            hint="Set recipients under [encryption]: later backups of topics and snapshots are encrypted.",
        )
    return sorted(matching_rows, key=itemgetter("source", "backup_id", "key_id"))


def _in_threads(work: Callable[[dict[str, Any]], T], rows: Sequence[dict[str, Any]]) -> Iterator[T]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="keys") as pool:
        yield from pool.map(work, rows)
