"""A backup of a snapshot that is at work, put down: one that was cut off is gone on with or taken away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter, ValidationError

from lakebackup import layout, sidecar
from lakebackup.errors import Damaged, NotFound, UsageProblem
from lakebackup.plan.backup_snapshot import Amount  # noqa: TC001 - read by pydantic

if TYPE_CHECKING:
    from lakebackup.plan.backup_snapshot import Newest, Snapshot
    from lakebackup.storage import Storage


@dataclass(frozen=True, slots=True)
class Begun:
    """What a backup is going to be. `asked`: what makes two requests the same. `lasting`: the snapshot has a
    name and stays what it is, so that the backup can be gone on with later. `dealt`: its shares are written.
    """

    backup_id: str
    number: int
    started_at: int
    kind: Literal["full", "differential"]
    parent: str | None
    compared_with: str | None
    snapshot: str
    lasting: bool
    end_ts: int
    tables: dict[str, int]
    amount: Amount
    tasks: int
    pack_below: int
    asked: dict[str, Any]
    dealt: bool = False

    @property
    def level(self) -> int:
        return 0 if self.kind == "full" else 1

    def hindrance(
        self, asked: dict[str, Any], next_one: Snapshot | None, newest: Newest | None
    ) -> str | None:
        """Why it is not gone on with; None when it is."""
        if not self.dealt:
            return "it was not planned to its end"
        if not self.lasting:
            return "its layout names no snapshot, so the files may be others by now"
        if next_one is None or next_one.id != self.snapshot:
            return "another snapshot is asked for"
        if asked != self.asked:
            return "it is asked for in another way"
        if (newest.backup_id if newest else None) != self.compared_with:
            return "another backup came in since"
        return None


def begin(storage: Storage, source: str, begun: Begun) -> None:
    """Put it down, before its shares are written, and once more when they are."""
    content = _BEGUN.dump_python(begun, mode="json")
    sidecar.put_sealed(storage, layout.begun_path(source), {"format": sidecar.FORMAT, **content})


def found(storage: Storage, source: str) -> Begun | None:
    """What the last run of a source left; None when it came to its end.

    What cannot be read, being damaged or of another version, is let go of: its objects are orphans.
    """
    path = layout.begun_path(source)
    try:
        return _BEGUN.validate_python(sidecar.get_sealed(storage, path))
    except NotFound:
        return None
    except (Damaged, UsageProblem, ValidationError):
        storage.delete(path)
        return None


def end(storage: Storage, source: str, backup_id: str) -> None:
    """It is over: the backup exists. What it was planned with goes."""
    for at in list(storage.list(f"{layout.backup_folder(source, backup_id)}work/")):
        storage.delete(at.path)
    storage.delete(layout.begun_path(source))


def take_away(storage: Storage, source: str, backup_id: str) -> int:
    """Delete what a backup that is in no catalog has stored; how many objects of files. Can be repeated."""
    # The manifest first: without it no catalog that is made anew takes the backup for one.
    storage.delete(layout.manifest_path(source, backup_id))
    count = 0
    for at in storage.list(layout.snapshot_folder(source, backup_id)):
        storage.delete(at.path)
        count += 1
    for at in storage.list(layout.backup_folder(source, backup_id)):
        storage.delete(at.path)
    storage.delete(layout.begun_path(source))
    return count


_BEGUN = TypeAdapter(Begun)
