"""A backup of a snapshot that is at work, put down: one that was cut off is gone on with or taken away."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import TypeAdapter

from lakebackup.plan.snapshots.backup import Amount  # noqa: TC001 - read by pydantic
from lakebackup.rules import layout
from lakebackup.store import manifest as sidecar

if TYPE_CHECKING:
    from collections.abc import Callable

    from lakebackup.plan.snapshots.backup import Newest, Snapshot
    from lakebackup.storage import Storage


@dataclass(frozen=True, slots=True)
class Begun:
    """What a backup is going to be. `asked`: what makes two requests the same. `lasting`: the snapshot has a
    name and stays what it is, so that the backup can be gone on with later. `pruned`: the row of the query
    latest_prune that it was planned with. `dealt`: its shares are written, and nothing of it was taken away.
    """

    backup_id: str
    number: int
    started_at: int
    kind: Literal["full", "differential"]
    parent: str | None
    compared_with: str | None
    pruned: dict[str, int | None]
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

    def same(self, asked: dict[str, Any], snapshot: Snapshot, end_ts: int) -> bool:
        """Whether it is the backup that is asked for of that snapshot, as of `end_ts`."""
        return (asked, snapshot.id, end_ts) == (self.asked, self.snapshot, self.end_ts)

    def hindrance(
        self,
        asked: dict[str, Any],
        next_one: Snapshot | None,
        end_ts: int | None,
        newest: Newest | None,
        pruned: dict[str, Any],
        counted: Callable[[Snapshot], tuple[int, int]],
    ) -> str | None:
        """Why it is not gone on with; None when it is. `next_one` is to be backed up, as of `end_ts`.

        `counted`: how many files and bytes a snapshot has; asked last.
        """
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
        if pruned != self.pruned:
            return "a prune came in since, which may have let go of what it refers to"
        listed = (self.amount.listed, self.amount.listed_bytes)
        if next_one.tables != self.tables or end_ts != self.end_ts or counted(next_one) != listed:
            return "the snapshot is not what it was"
        return None


def begin(storage: Storage, source: str, begun: Begun) -> None:
    """Put it down, before its shares are written, and once more when they are."""
    content = _BEGUN.dump_python(begun, mode="json")
    sidecar.put_sealed(storage, layout.begun_path(source), {"format": layout.FORMAT, **content})


def found(storage: Storage, source: str) -> Begun | None:
    """What the last run of a source left; None when it came to its end."""
    return sidecar.get_record(storage, layout.begun_path(source), _BEGUN)


def end(storage: Storage, source: str, backup_id: str) -> None:
    """It is over: the backup exists. What it was planned with goes."""
    for at in list(storage.list(f"{layout.backup_folder(source, backup_id)}work/")):
        storage.delete(at.path)
    storage.delete(layout.begun_path(source))


def take_away(storage: Storage, source: str, backup_id: str) -> int:
    """Delete what a backup that is in no catalog has stored; how many objects of files. Can be repeated.

    The caller holds the lease for sure: another run may have gone on with the backup, and made it exist.
    """
    begun = found(storage, source)
    if begun and begun.backup_id == backup_id and begun.dealt:
        # From here on nobody goes on with it, though this run be cut off between parts and objects.
        begin(storage, source, replace(begun, dealt=False))
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
