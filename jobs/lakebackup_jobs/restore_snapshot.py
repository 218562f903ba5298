"""Carry out the restore of a snapshot's files into a folder: Spark tasks read, check and write them.

The files are written down first, in shares, in a folder of the restore's own inside the target: a restore
that was cut off is found again there, and goes on when the same files are asked for.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, groupby, islice, pairwise
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakebackup.engine.failures import task_errors
from lakebackup.errors import Busy, Damaged, EnvironmentProblem, Refused, UsageProblem
from lakebackup.model import Audit
from lakebackup.plan.restore_snapshot import EACH, digest_of, in_order, plan_restore, require_names
from lakebackup.snapshot.names import OWN, Limits
from lakebackup.storage import open_storage
from lakebackup.store import CatalogReader, CatalogWriter
from lakebackup.times import format_ts
from lakebackup_jobs.identity import holder, micros
from lakebackup_jobs.outcome import raise_first
from lakebackup_jobs.restoring import noted
from lakebackup_jobs.snapshot.write_task import NAMED, UNFINISHED, WRITTEN, WriteJob
from lakebackup_jobs.taskboard import TaskBoard
from lakebackup_sql import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebackup.plan.restore_snapshot import SnapshotRestorePlan, SnapshotRestoreRequest
    from lakebackup.storage import Storage
    from lakebackup_jobs.progress import Reporter

_SHARE = 128 << 20
_MOST_SHARES = 400
_SHOWN = 50
# So little is written by threads of this process, before Spark's tasks would have.
_LITTLE = 4 << 30


def run(
    request: SnapshotRestoreRequest, *, spark: SparkSession | None = None, reporter: Reporter
) -> dict[str, Any]:
    """Restore, and return what was written.

    Raises Refused (names that cannot be written, a folder that holds something else, files that were pruned),
    Damaged (some files are not what the catalog says: they are not there, all others are), Busy,
    EnvironmentProblem.
    """
    from lakebackup_jobs.session import spark_session

    started = time.monotonic()
    reader = CatalogReader.require(request.destination, request.catalog)
    made = plan_restore(request, reader)
    target = Target(request.folder)
    require_names(reader, target.limits())
    digest = digest_of(reader, made)
    for note in made.notes:
        reporter.warning(note)
    summary = _summary(made, target)
    if request.dry_run:
        return {"dry_run": True, **summary, "refused_because": target.taken(digest)}
    target.require_free(made, digest)
    with target.begun(digest, made) as resumed:
        if resumed:
            reporter.note(f"going on with the restore that {target.folder} holds and that did not finish")
        if not _is_little(made):
            spark = spark or spark_session(remote=request.remote)
        with noted(
            spark,
            reader,
            destination=request.destination,
            catalog=request.catalog,
            source=made.source,
            target=f"dir:{target.folder}",
            selection=request.select or load("queries", "restore_snapshot_files"),
            to_ts=made.end_ts,
        ) as counts:
            if made.damage:
                _audit(request, made, str(target.folder))
            rows = _write(spark, reader, made, target, reporter)
            counts.update({count: sum(row[count] for row in rows) for count in ("entries", "bytes")})
            result = {
                "resumed": resumed,
                **summary,
                "written": counts["entries"] - sum(row["kept"] for row in rows),
                "seconds": round(time.monotonic() - started, 3),
            }
            if damage := _damage(rows, target):
                reporter.result(result)
                raise damage
        target.finish()
    return result


class Target:
    """The folder that files are restored into: empty, or holding what the same restore left of itself.

    Raises UsageProblem when it is no folder of this machine.
    """

    def __init__(self, folder: str) -> None:
        uri = open_storage(folder).uri
        if not uri.startswith("file://"):
            raise UsageProblem(f"{uri} is no folder of this machine.", hint="Give a folder.")
        self.folder = Path(uri.removeprefix("file://"))
        self._own = self.folder / OWN
        self._state = self._own / "state.json"
        if self.folder.exists() and not self.folder.is_dir():
            raise Refused(
                f"{self.folder} is no folder.", hint="Give one that is empty, or that is not there."
            )

    @property
    def storage(self) -> Storage:
        """The restore's own folder, for what is only needed until it is done."""
        return open_storage(str(self._own))

    def limits(self) -> Limits:
        """What the file system takes."""
        there = next(path for path in (self.folder, *self.folder.parents) if path.is_dir())
        return Limits(
            name=os.pathconf(there, "PC_NAME_MAX"),
            path=os.pathconf(there, "PC_PATH_MAX") - len(os.fsencode(self.folder)) - 2,
            fold=_folds(there),
        )

    def taken(self, digest: str) -> str | None:
        """Why the restore with this digest may not write here; None when it may."""
        if not self.folder.exists():
            return None
        first = next((found.name for found in self.folder.iterdir() if found.name != OWN), None)
        if first is None:
            return None
        state = self._read()
        if state is None:
            return f"{self.folder} holds {first!r} already"
        if state.get("digest") != digest:
            return (
                f"{self.folder} holds a restore of other files that did not finish "
                f"(of {state.get('source')}, {state.get('backup_id') or 'by a SELECT'})"
            )
        return None

    def require_free(self, made: SnapshotRestorePlan, digest: str) -> None:
        """Refused when the folder is taken, EnvironmentProblem when its disk has not enough room."""
        why = self.taken(digest)
        if why is not None:
            raise Refused(
                f"{why}.",
                hint="Give an empty folder; or ask for the same files as that restore, and it goes on.",
            )
        there = next(path for path in (self.folder, *self.folder.parents) if path.is_dir())
        room = shutil.disk_usage(there).free
        if self._read() is None and room < made.bytes:
            raise EnvironmentProblem(
                f"{there} has room for {room} bytes, and the files have {made.bytes}.",
                hint="Make room, or name another folder.",
            )

    @contextmanager
    def begun(self, digest: str, made: SnapshotRestorePlan) -> Iterator[bool]:
        """Have the folder for this process alone while the block runs; whether an earlier run began there.

        Raises Busy, EnvironmentProblem.
        """
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            lock = (self._own / "lock").open("wb")
            with lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                resumed = (self._read() or {}).get("digest") == digest
                for own in ("plan", UNFINISHED, "progress"):
                    shutil.rmtree(self._own / own, ignore_errors=True)
                (self._own / UNFINISHED).mkdir()
                state = {"digest": digest, "source": made.source, "backup_id": made.backup_id}
                self.storage.put(self._state.name, json.dumps(state).encode())
                yield resumed
        except BlockingIOError:
            raise Busy(
                f"Another restore into {self.folder} is at work.", hint="Wait until it is done."
            ) from None
        except OSError as error:
            raise EnvironmentProblem(
                f"Cannot write to {self.folder}: {error}.",
                hint="Make room or give the right to write there, or name another folder.",
            ) from error

    def finish(self) -> None:
        """Take away what is only needed until the restore is done."""
        # The state goes first: a folder with files and without one is never gone on with.
        self._state.unlink()
        shutil.rmtree(self._own)
        handle = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _read(self) -> dict[str, Any] | None:
        try:
            found = json.loads(self._state.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise Refused(f"{self._state} cannot be read: {error}.", hint="Give another folder.") from error
        return found if isinstance(found, dict) else {}


def _folds(folder: Path) -> bool:
    """Whether a folder's file system takes names that differ in upper and lower case alone for one."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".lakebackup-a") as probe:
            path = Path(probe.name)
            return path.with_name(path.name.upper()).exists()
    except OSError:  # nothing can be written there: that is told when it is tried
        return False


def _is_little(made: SnapshotRestorePlan) -> bool:
    return made.weight <= _LITTLE


def _write(
    spark: SparkSession | None,
    reader: CatalogReader,
    made: SnapshotRestorePlan,
    target: Target,
    reporter: Reporter,
) -> list[Mapping[str, Any]]:
    """Write the shares down and carry them out, in tasks of Spark's where there is a session and much to do.

    Returns a row of WRITTEN for each share.
    """
    shares = deal(target.storage, reader, made)
    reporter.start(made.files, made.bytes, "restore")
    job = WriteJob(str(target.folder), target.storage.uri, shares, dict(reader.destinations()))
    with TaskBoard(target.storage, "").watched(reporter.update):
        if spark is None or _is_little(made):
            rows = _here(job)
        else:
            with task_errors():
                tasks = spark.range(0, len(shares), 1, len(shares)).mapInArrow(job, WRITTEN)
                rows = [row.asDict() for row in tasks.collect()]  # a row a share
            raise_first(row["error"] for row in rows)
    reporter.update(made.files, made.bytes)
    return rows


def _here(job: WriteJob) -> list[Mapping[str, Any]]:
    """Carry all shares out in this process; hashing and writing leave the interpreter to the next thread."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            return list(pool.map(job.share, range(len(job.shares))))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def deal(storage: Storage, reader: CatalogReader, made: SnapshotRestorePlan) -> tuple[str, ...]:
    """Write the shares of a planned restore into `storage`, as Arrow; returns their paths.

    `reader` has the relation `snapshot_selected`.
    """
    import pyarrow as pa

    paths = []
    pieces = _pieces(in_order(reader, made), max(_SHARE, made.weight // _MOST_SHARES))
    for number, (_, share) in enumerate(groupby(pieces, key=itemgetter(0))):
        sink = pa.BufferOutputStream()
        batches = [piece for _, piece in share]
        with pa.ipc.new_stream(sink, batches[0].schema) as stream:
            for batch in batches:
                stream.write_batch(batch)
        paths.append(f"plan/{number:06d}.arrow")
        storage.put(paths[-1], sink.getvalue().to_pybytes())
    return tuple(paths)


def _pieces(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of batches with the number of their share: about `size` bytes; an object is in one."""
    import numpy as np
    import pyarrow.compute as pc

    weight = share = 0
    before = None
    for batch in filter(len, batches):
        objects = pc.binary_join_element_wise(batch.column("destination"), batch.column("path"), "\0")
        begins = np.ones(len(batch), bool)
        begins[0] = objects[0].as_py() != before
        begins[1:] = pc.not_equal(objects[1:], objects[:-1])
        own = batch.column("bytes").fill_null(0).to_numpy() + EACH
        weights = weight + np.cumsum(own)
        first = np.maximum.accumulate(np.where(begins, np.arange(len(batch)), -1))
        shares = np.where(first < 0, share, ((weights - own) // size)[first])
        weight, share, before = int(weights[-1]), int(shares[-1]), objects[-1].as_py()
        for start, stop in pairwise([*np.flatnonzero(np.diff(shares, prepend=-1)), len(batch)]):
            yield int(shares[start]), batch.slice(start, stop - start)


def _summary(made: SnapshotRestorePlan, target: Target) -> dict[str, Any]:
    shown = made.tables[:_SHOWN]
    return {
        "source": made.source,
        "backup_id": made.backup_id,
        "taken": format_ts(made.end_ts) if made.end_ts is not None else None,
        "folder": str(target.folder),
        "of_tables": len(made.tables),
        "files": made.files,
        "bytes": made.bytes,
        "not_verifiable": sum(table.unknown for table in made.tables) or None,
        "tables": [
            {"table": table.scope, "tablets": table.regions, "files": table.files, "bytes": table.bytes}
            for table in shown
        ],
    }


def _damage(rows: Sequence[Mapping[str, Any]], target: Target) -> Damaged | None:
    """What to tell of files that could not be restored; None when all were."""
    count = sum(row["damaged"] for row in rows)
    if not count:
        return None
    names = list(islice(chain.from_iterable(json.loads(row["names"]) for row in rows), NAMED))
    more = f"\n  and {count - len(names)} more" if count > len(names) else ""
    return Damaged(
        f"{count} files are not in {target.folder}, all others are. What is stored of them is not whole:\n"
        + "\n".join(f"  {name}" for name in names)
        + more,
        hint="Put the objects back from a copy of the destination and run the same command again, or restore "
        "these files from another backup.",
    )


def _audit(request: SnapshotRestoreRequest, made: SnapshotRestorePlan, folder: str) -> None:
    """Write down that a person restores a backup that is known not to be whole."""
    entry = Audit(
        at=micros(datetime.now(UTC)),
        actor=holder(),
        action="restore with damage",
        subject=made.backup_id or "",
        detail=json.dumps({"folder": folder, "damage": made.damage}),
    )
    CatalogWriter.open(None, request.destination, request.catalog).append_audit(entry)


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    """As a program for spark-submit: the arguments of `lakebackup restore snapshot`."""
    from lakebackup_jobs.cli import run_verb

    return run_verb(["restore", "snapshot"], argv, spark=spark)


if __name__ == "__main__":
    raise SystemExit(main())
