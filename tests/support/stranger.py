"""An attacker who can write the storage of a repository: rows, commits and objects, without lakebackup's
code."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

Rows = list[dict[str, Any]]
DEEP = "[" * 200_000
NOW_US = time.time_ns() // 1000


class Stranger:
    """Writes below one repository."""

    def __init__(self, root: Path) -> None:
        self.root, self.catalog = root, root / "catalog"

    def rows(self, table: str) -> Rows:
        """The rows of a table of the catalog."""
        rows: Rows = pa.table(DeltaTable(self.catalog / table).to_pyarrow_dataset().to_table()).to_pylist()
        return rows

    def add(self, table: str, **values: Any) -> None:
        """Add a row to a table; columns that are not given are NULL. No constraint of the table is
        checked."""
        self._commit(table, [dict(values)])

    def change(self, table: str, **values: Any) -> None:
        """Change values in every row of a table; a function gets the row and returns the value."""
        changed = [
            row | {name: value(row) if callable(value) else value for name, value in values.items()}
            for row in self.rows(table)
        ]
        self._commit(table, changed, replaced=True)

    def add_file(self, table: str, path: str, rows: int = 0) -> None:
        """Add a file to the log of a table, by a path of any kind."""
        self._log(table, [self._add(path, 1_000, rows)])

    def log(self, table: str, text: str) -> None:
        """Add a commit with any text to a table's log."""
        folder = self.catalog / table / "_delta_log"
        version = 1 + max(int(file.stem) for file in folder.glob("*.json"))
        (folder / f"{version:020d}.json").write_text(text)

    def put_object(self, path: str, content: bytes) -> Path:
        """Write an object of the repository."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        return file

    def parquet(self, table: str, path: Path, copies: int, **values: Any) -> None:
        """Write a file like one of a table: its rows with other values, `copies` times."""
        rows = [row | values for row in self.rows(table)]
        schema = self._schema(table)
        chunk = pa.Table.from_pylist(rows[:1] * 100_000 if copies > 1 else rows, schema=schema)
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for _ in range(copies):
                writer.write_table(chunk)

    def _schema(self, table: str) -> pa.Schema:
        return pa.schema(DeltaTable(self.catalog / table).schema().to_arrow())

    def _commit(self, table: str, rows: Rows, *, replaced: bool = False) -> None:
        folder = self.catalog / table
        name = f"x-{uuid.uuid4().hex}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=self._schema(table)), folder / name)
        removed = []
        if replaced:
            files = pa.table(DeltaTable(folder).get_add_actions(flatten=True)).column("path").to_pylist()
            removed = [
                {"remove": {"path": path, "deletionTimestamp": NOW_US // 1000, "dataChange": True}}
                for path in files
            ]
        self._log(table, [*removed, self._add(name, (folder / name).stat().st_size, len(rows))])

    @staticmethod
    def _add(path: str, size: int, rows: int) -> Mapping[str, Any]:
        stats = json.dumps({"numRecords": rows})
        return {
            "add": {
                "path": path, "partitionValues": {}, "size": size, "modificationTime": NOW_US // 1000,
                "dataChange": True, "stats": stats,
            }
        }  # fmt: skip

    def _log(self, table: str, actions: list[Mapping[str, Any]]) -> None:
        info = {"commitInfo": {"timestamp": NOW_US // 1000, "operation": "WRITE"}}
        self.log(table, "".join(f"{json.dumps(action)}\n" for action in [info, *actions]))


class World:
    """What the attacker must not reach: files of the operator, another repository, a server."""

    SECRET = "TOP-SECRET-OF-THE-OPERATOR"

    def __init__(self, folder: Path, other_repository: Path, port: int) -> None:
        self.private, self.other_repository, self.port = folder / "private", other_repository, port
        self.ran = folder / "ran"
        self.private.mkdir(parents=True)
        (self.private / "key.pem").write_text(self.SECRET)


Forgery = Callable[[Stranger, World], None]


def policy(*command: str, **values: Any) -> Forgery:
    """Adds a policy of a new source, whose command is due."""

    def forge(stranger: Stranger, world: World) -> None:
        words = [
            word.format(private=world.private, other=world.other_repository, ran=world.ran)
            for word in command
        ]
        row = {
            "source": "forged", "at": NOW_US, "actor": "root@vm:1", "full_schedule": "daily",
            "full_every_ms": 1, "incremental_kind": "differential", "level": 1, "min_redundancy": 1,
            "removed": False, "command": json.dumps(words) if words else None,
        }  # fmt: skip
        stranger.add("policies", **(row | values))

    return forge


def log_task(state: str = "running", **settings: Any) -> Forgery:
    """Adds a log task that reads from the attacker's server."""

    def forge(stranger: Stranger, world: World) -> None:
        values = {"feed": "debezium", "bootstrap": f"127.0.0.1:{world.port}", "topics": ["orders"]}
        text = settings.get("text") or json.dumps(values | settings)
        stranger.add("log_tasks", source="forged", at=NOW_US, actor="root@vm:1", state=state, settings=text)

    return forge


def destination(name: str, uri: str) -> Forgery:
    """Adds a destination, whose id and URI may be those of another; unless the id is the own, files move
    there."""

    def forge(stranger: Stranger, world: World) -> None:
        other_id = json.loads((world.other_repository / "lakebackup.json").read_text())["destination"]
        own_id = json.loads((stranger.root / "lakebackup.json").read_text())["destination"]
        ids = {"other": other_id, "own": own_id}
        root_uri = uri.format(other=world.other_repository, private=world.private)
        stranger.add("destinations", destination=ids.get(name, name), uri=root_uri, created_at=NOW_US)
        if name != "own":
            stranger.change("files", destination=ids.get(name, name))

    return forge


def files(**values: Any) -> Forgery:
    """Changes values of every file."""

    def forge(stranger: Stranger, world: World) -> None:
        stranger.change(
            "files",
            **{
                name: value.format(private=world.private, other=world.other_repository)
                if isinstance(value, str)
                else value
                for name, value in values.items()
            },
        )

    return forge


def renamed_source(name: str) -> Forgery:
    """Renames the source of the backups, and adds a policy of it."""

    def forge(stranger: Stranger, world: World) -> None:
        name_ = name.format(ran=world.ran)
        stranger.change("backups", source=name_)
        policy("snapshot", "/nowhere", source=name_)(stranger, world)

    return forge


def backups(**values: Any) -> Forgery:
    """Changes values of every backup."""
    return lambda stranger, _world: stranger.change("backups", **values)


def table_file(
    path: str, write: Callable[[Stranger, World, Path], None] | None = None, table: str = "backups"
) -> Forgery:
    """Adds a commit to a table that names a file; `write` writes the file first."""

    def forge(stranger: Stranger, world: World) -> None:
        name = path.format(private=world.private)
        if write:
            write(stranger, world, stranger.catalog / table / name)
        stranger.add_file(table, name, 1)

    return forge


def _outside(stranger: Stranger, world: World, _path: Path) -> None:
    stranger.parquet("backups", world.private / "rows.parquet", 1, note=world.SECRET)


def _linked(stranger: Stranger, world: World, path: Path) -> None:
    _outside(stranger, world, path)
    path.symlink_to(world.private / "rows.parquet")


def _pipe(_stranger: Stranger, _world: World, path: Path) -> None:
    os.mkfifo(path)


def _in_log(name: str, write: Callable[[Path, World], object]) -> Forgery:
    """Runs `write` at the path of a file of a table's log; `next` is the path of the next commit."""

    def forge(stranger: Stranger, world: World) -> None:
        log = stranger.catalog / "backups" / "_delta_log"
        version = 1 + max(int(file.stem) for file in log.glob("*.json"))
        path = log / (f"{version:020d}.json" if name == "next" else name)
        path.unlink(missing_ok=True)
        write(path, world)

    return forge


def _large(path: Path, _world: World) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def _checkpoint_bomb(stranger: Stranger, _world: World) -> None:
    """Adds a checkpoint whose few bytes unpack to gigabytes of paths."""
    log = stranger.catalog / "backups" / "_delta_log"
    version = max(int(file.stem) for file in log.glob("*.json"))
    fields = {"path": "x" * 1_000, "size": 1, "modificationTime": 1, "dataChange": True}
    rows = pa.Table.from_pylist([{"add": fields}] * 20_000)
    with pq.ParquetWriter(
        log / f"{version:020d}.checkpoint.parquet", rows.schema, compression="zstd"
    ) as file:
        for _ in range(50):
            file.write_table(rows)
    (log / "_last_checkpoint").write_text(json.dumps({"version": version, "size": 1_000_000}))


def _linked_log(stranger: Stranger, world: World) -> None:
    log = stranger.catalog / "holds" / "_delta_log"
    shutil.rmtree(log)
    log.symlink_to(world.other_repository / "catalog" / "holds" / "_delta_log")


def _linked_catalog(stranger: Stranger, world: World) -> None:
    shutil.rmtree(stranger.catalog)
    stranger.catalog.symlink_to(world.other_repository / "catalog")


def _no_log(stranger: Stranger, _world: World) -> None:
    log = stranger.catalog / "holds" / "_delta_log"
    shutil.rmtree(log)
    log.write_text("")


def _sums(stranger: Stranger, _world: World) -> None:
    for file in (stranger.catalog / "backups").glob("*.parquet"):
        sums = file.with_name(f".{file.name}.crc")
        sums.unlink(missing_ok=True)
        os.mkfifo(sums)


def _objects_are(write: Callable[[Path, World], object]) -> Forgery:
    """Replaces every object of a backup by what `write` makes at its path."""

    def forge(stranger: Stranger, world: World) -> None:
        for file in [*(stranger.root / "src1").rglob("*")]:
            if file.is_file():
                file.unlink()
                write(file, world)

    return forge


def restore(**values: Any) -> Forgery:
    """Adds a restore that did not end."""

    def forge(stranger: Stranger, world: World) -> None:
        row = {
            "restore_id": "20260101T000000Z-000000aa", "at": NOW_US, "source": "src1", "state": "running",
            "target": f"dir:{world.private}/lakebackup-drill-x", "selection": "{}", "detail": "{}",
        }  # fmt: skip
        stranger.add("restores", **(row | values))

    return forge


def removal(path: str) -> Forgery:
    """Adds the removal of a file, as if a prune had deleted it."""

    def forge(stranger: Stranger, world: World) -> None:
        own_id = json.loads((stranger.root / "lakebackup.json").read_text())["destination"]
        stranger.add(
            "removals", prune_id="20260101T000000Z-0000000a", at=NOW_US, source="src1", destination=own_id,
            path=path.format(private=world.private), backup_id="x", scope="-", epoch="-", region="-", bytes=1,
            reason="expired",
        )  # fmt: skip

    return forge


def snapshot_files(**values: Any) -> Forgery:
    """Changes values of every file of a snapshot."""

    def forge(stranger: Stranger, world: World) -> None:
        formatted = {
            name: value.format(private=world.private) if isinstance(value, str) else value
            for name, value in values.items()
        }
        stranger.change("snapshot_files", **formatted)

    return forge


def marker(content: bytes) -> Forgery:
    """Replaces the file that names the destination."""

    def forge(stranger: Stranger, _world: World) -> None:
        stranger.put_object("lakebackup.json", content)

    return forge


def patterns(text: str) -> Forgery:
    """Adds a policy of `src1`, and patterns of its topics."""

    def forge(stranger: Stranger, world: World) -> None:
        policy(source="src1")(stranger, world)
        stranger.add("policy_topics", source="src1", at=NOW_US, actor="x", patterns=text)

    return forge


def _bomb(stranger: Stranger, _world: World, path: Path) -> None:
    stranger.parquet(path.parent.name, path, 40)


def _log_text(text: str) -> Forgery:
    return lambda stranger, _world: stranger.log("backups", text)


def _prune(stranger: Stranger, world: World) -> None:
    """Adds an interrupted prune of objects of the other repository."""
    from lakebackup.rules import layout

    destination("other", "{other}")(stranger, world)
    stranger.put_object(layout.prune_path("20260101T000000Z-0000000a"), b'{"format": 1}')


FORGERIES: Mapping[str, Forgery] = {
    "a policy copies a private folder": policy("snapshot", "{private}"),
    "a policy names a configuration": policy("snapshot", "{private}", "--config", "{private}/evil.toml"),
    "a policy sets Spark": policy("snapshot", "/etc", "--spark-conf", "spark.executorEnv.PYTHONPATH=/tmp"),
    "a policy names a master": policy("snapshot", "/etc", "--master", "spark://evil:7077"),
    "a policy names a Connect server": policy("snapshot", "/etc", "--remote", "sc://evil"),
    "a policy writes elsewhere": policy("snapshot", "{private}", "--repo", "{other}"),
    "a policy writes another catalog": policy("snapshot", "{private}", "--catalog", "{other}/catalog"),
    "a policy names Kafka's settings": policy(
        "queue", "forged", "--kafka-config", "{private}/evil.properties"
    ),
    "a policy reads an engine's folder": policy("queue", "forged", "--snapshot-folder", "{private}"),
    "a policy takes all topics": policy(),
    "a policy has another verb": policy("restore", "snapshot", "src1", "--to", "{private}"),
    "a policy has no words": policy("", command="[]"),
    "a policy's words are no JSON": policy("", command="[[["),
    "a policy's words are an object": policy("", command='{"a": 1}'),
    "a policy has a drill": policy("snapshot", "{private}", drill_schedule="hourly", drill_every_ms=1),
    "a policy's schedule is no schedule": policy("snapshot", "{private}", full_schedule="$(touch {ran})"),
    "a log task reads from another server": log_task(),
    "a log task that waits reads from another server": log_task("paused"),
    "a log task with settings that are no JSON": log_task(text="{"),
    "a log task with settings of another form": log_task(text='{"feed": 5}'),
    "files lie in another repository": destination("other", "{other}"),
    "the repository lies elsewhere": destination("own", "{other}"),
    "files lie in a private folder": destination("0" * 16, "{private}"),
    "files lie in a bucket": destination("1" * 16, "s3://evil-bucket/x"),
    "files lie in no place": destination("2" * 16, "ftp://evil/x"),
    "files lie above": destination("3" * 16, "../.."),
    "a file's path leads out": files(path="../../private/key.pem"),
    "a file's path is absolute": files(path="{private}/key.pem"),
    "a file's path has a line break": files(path="a\nb"),
    "a file is larger than it is": files(bytes=1 << 60),
    "a file has fewer than no bytes": files(bytes=-5),
    "a file's name leads out of the target": files(scope="../..", region="../../.."),
    "a name has a command": renamed_source("prod$(touch {ran})"),
    "a name has backquotes": renamed_source("`touch {ran}`"),
    "a name is a flag": renamed_source("--config=x"),
    "a name has escapes of a terminal": renamed_source("prod\x1b[2J\x1b]0;owned\x07"),
    "a name has a line break": renamed_source("prod\nerror: all is well"),
    "a name is a formula": renamed_source("=cmd|' /C calc'!A0"),
    "a name leads out": renamed_source("../../etc"),
    "a name is long": renamed_source("x" * 5_000),
    "backups are of the future": backups(finished_at=NOW_US + 10**15),
    "backups have no number": backups(number=-(2**62)),
    "backups are each other's parents": backups(parent=lambda row: row["backup_id"]),
    "a table's file lies above": table_file("../../../private/rows.parquet", _outside),
    "a table's file is absolute": table_file("{private}/rows.parquet", _outside),
    "a table's file is a URL": table_file("file://{private}/rows.parquet", _outside),
    "a table's file is a link": table_file("link.parquet", _linked),
    "a table's file is a pipe": table_file("pipe.parquet", _pipe),
    "a table's file has millions of rows": table_file("bomb.parquet", _bomb),
    "a table of few rows has millions": table_file("bomb.parquet", _bomb, "migrations"),
    "a table of places has millions": table_file("bomb.parquet", _bomb, "destinations"),
    "a table's log is deep": _log_text('{"add":' + '{"a":' * 100_000),
    "a table's log is no JSON": _log_text("\x00" * 1_000),
    "a table's log has a pipe": _in_log("next", lambda path, _: os.mkfifo(path)),
    "a table's log has a folder": _in_log("next", lambda path, _: path.mkdir()),
    "a table's log has a link": _in_log(
        "next", lambda path, world: path.symlink_to(world.private / "key.pem")
    ),
    "a table's log has gigabytes": _in_log("next", _large),
    "a table's log has a version of no number": _in_log("9" * 20 + ".json", lambda path, _: path.touch()),
    "a table's checkpoint is a pipe": _in_log("_last_checkpoint", lambda path, _: os.mkfifo(path)),
    "a table's checkpoint is deep": _in_log("_last_checkpoint", lambda path, _: path.write_text(DEEP)),
    "a table's checkpoint is no number": _in_log(
        "_last_checkpoint", lambda path, _: path.write_text('{"version": 1e999, "size": -5}')
    ),
    "a table's checkpoint has gigabytes": _checkpoint_bomb,
    "a table's log is a link": _linked_log,
    "a table's log is a file": _no_log,
    "the catalog is a link": _linked_catalog,
    "a table's sums are pipes": _sums,
    "a prune of another repository": _prune,
    "a prune deletes above": removal("../private/key.pem"),
    "a prune deletes an absolute path": removal("{private}/key.pem"),
    "a restore is a drill's": restore(),
    "a restore's detail is deep": restore(detail=DEEP),
    "a restore's id leads out": restore(restore_id="../../private"),
    "a snapshot's file leads out": snapshot_files(name="../../../private/key.pem"),
    "a snapshot's file is absolute": snapshot_files(name="{private}/key.pem"),
    "a snapshot's file lies outside": snapshot_files(path="../private/key.pem", bytes=26, sha256=None),
    "a snapshot's file has a zero byte": snapshot_files(name="a\0b"),
    "a snapshot's file is everywhere": snapshot_files(bytes=2**62, position=-5),
    "a snapshot's file has rights of root": snapshot_files(mode=0o104777, mtime_ms=-(2**62)),
    "a snapshot's file is a folder": snapshot_files(name="."),
    "objects are pipes": _objects_are(lambda path, _: os.mkfifo(path)),
    "objects are links": _objects_are(lambda path, world: path.symlink_to(world.private / "key.pem")),
    "the destination's file is deep": marker(DEEP.encode()),
    "the destination's file has a path": marker(b'{"format": 1, "destination": "../.."}'),
    "a policy's patterns are deep": patterns(DEEP),
    "a policy's patterns are an object": patterns('{"a": 1}'),
    "a policy's pattern takes for ever": patterns('["(a+)+$"]'),
    "a policy's time zone is a path": policy("snapshot", "/nowhere", time_zone="../../../etc/passwd"),
    "a policy is due without end": policy("snapshot", "/nowhere", full_every_ms=-(2**62)),
}
