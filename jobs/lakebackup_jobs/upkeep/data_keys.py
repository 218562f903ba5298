"""Tests the data keys of backups with the identity of the settings, and wraps them for other recipients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from lakebackup.store import data_keys, metadata_keys
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


def test(request: KeysRequest, *, reporter: Reporter, identities: Identities | None) -> dict[str, Any]:
    """Open each data key, and return how many there are and those that cannot be opened.

    `identities`: None for those of the settings. Raises UsageProblem (no identity is set), NotFound (no
    backup is encrypted), and Damaged, with the result, when keys cannot be opened.
    """
    work = Workspace(request, "", reporter)
    reader = work.current()
    rows = _rows(reader, request.source)
    identities_in_use = identities or _identities()
    roots = reader.destinations()

    def problem_of(row: dict[str, Any]) -> str | None:
        try:
            open_key(identities_in_use, read_key(roots, row))
        except LakebackupError as error:
            return error.message
        return None

    problems = [
        _problem(row, problem)
        for row, problem in zip(rows, _in_threads(problem_of, rows), strict=True)
        if problem
    ]
    result = {"keys": len(rows), "opened": len(rows) - len(problems), "problems": problems}
    _require_none(problems, result, "These backups cannot be restored with this identity.")
    return result


def rotate(request: KeysRequest, *, reporter: Reporter) -> dict[str, Any]:
    """Wrap each data key for the recipients of the request, and return how many are wrapped for them. The key
    of encrypted metadata is wrapped too.

    Data files and other repositories are not touched. A dry run only counts. A rotation that was interrupted
    has wrapped some keys, which the identity may no longer open: they stay as they are. Raises UsageProblem
    (no identity, no recipients), NotFound (no backup is encrypted), Busy, and Damaged, with the result, when
    keys cannot be opened; all others are wrapped.
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
    if request.dry_run:
        return {"keys": len(rows), "recipients": list(request.recipients), "dry_run": True}
    roots, recipients = reader.destinations(), request.recipients
    is_own = not set(recipients).isdisjoint(identities.names)

    def wrap(row: dict[str, Any]) -> tuple[list[KeyRecipient], str | None]:
        """Return the new rows of a key, and why it cannot be opened."""
        try:
            key_object = read_key(roots, row)
        except Damaged as error:
            return [], error.message
        try:
            key = open_key(identities, key_object)
        except Damaged as error:
            # An interrupted rotation has wrapped it, and this identity does not open it any more.
            if is_own or sorted(key_object.recipients) != sorted(recipients):
                return [], error.message
        else:  # also if it names these recipients: what it names proves nothing about who opens it
            storage = roots.open(row["destination"])
            key_object = data_keys.store(storage, key, recipients, created_at=key_object.created_at)
        return (key_object.rows if key_object.wrapped_at != row["wrapped_at"] else []), None

    problems = []
    writer = work.writer(in_process=True)
    writer.prepare()
    metadata_keys.rewrap(work.storage, request.recipients)
    for source, group in groupby(rows, itemgetter("source")):
        with work.lease(f"source-{source}"):
            keys, wrapped = list(group), []
            for row, (key_rows, problem) in zip(keys, _in_threads(wrap, keys), strict=True):
                wrapped += key_rows
                if problem:
                    problems.append(_problem(row, problem))
            writer.append(wrapped)
    result = work.timed(
        {
            "keys": len(rows),
            "wrapped": len(rows) - len(problems),
            "recipients": list(request.recipients),
            "problems": problems,
        }
    )
    hint = "All others are wrapped. Set an identity that opens these, or restore their objects from a copy."
    _require_none(problems, result, hint)
    return result


def _problem(row: Mapping[str, Any], problem: str) -> dict[str, Any]:
    return {**{name: row[name] for name in ("source", "backup_id", "key_id")}, "problem": problem}


def _require_none(problems: Sequence[Mapping[str, Any]], result: Mapping[str, Any], hint: str) -> None:
    """Raise Damaged, with the result, if there are problems with keys."""
    if not problems:
        return
    first = problems[0]
    raise Damaged(
        f"{len(problems)} of {result['keys']} data keys cannot be opened; the first is that of backup "
        f"{first['backup_id']}: {first['problem']}",
        hint=hint,
    ).with_result(result)


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
            hint="Set recipients under [encryption]: later backups are encrypted.",
        )
    return sorted(matching_rows, key=itemgetter("source", "backup_id", "key_id"))


def _in_threads(work: Callable[[dict[str, Any]], T], rows: Sequence[dict[str, Any]]) -> Iterator[T]:
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="keys") as pool:
        yield from pool.map(work, rows)
