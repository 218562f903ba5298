"""Every kind of question that restores, backups and people ask a catalog of topics.

`python -m tests.benchmarks.catalog_questions ENGINE FOLDER RUNS QUESTION...` asks some of them and reports as
asking.py says. Each run opens the catalog again, as a command does. All runs use the same Spark session.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tests.benchmarks.asking import answer
from tests.benchmarks.measure import Tree

from lakebackup.store.reader import CatalogReader

SOURCE = "made"  # in the catalogs of catalog_data and of chains_data
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Asker:
    """A new reader of a synthetic catalog on one of the engines, and the values that questions name."""

    reader: CatalogReader
    facts: dict[str, Any]
    run: int

    def rows(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        return self.reader.rows(name, **parameters)

    def count(self, name: str, **parameters: Any) -> int:
        """Stream the rows of a statement. Returns their number."""
        return sum(batch.num_rows for batch in self.reader.query(name, **parameters))

    def select(self, sql: str) -> int:
        """Run a person's SELECT. Returns the number of its rows."""
        if self.reader.engine == "spark":
            return int(self.reader._engine.select(sql).count())
        return sum(batch.num_rows for batch in self.reader.select(sql))

    @cached_property
    def topic(self) -> str:
        return f"t{self.run % 5:03d}"

    def instant(self, share: float) -> int:
        """Return a time (ms): `share` of the way from the first to the last backup, shifted in each run."""
        first, last = self.facts["first_ts"], self.facts["last_ts"]
        return int(first + share * (last - first) - self.run * 7 * HOUR_MS)

    @cached_property
    def backup_id(self) -> str:
        ids: list[str] = self.facts["ids"]
        return ids[self.run % len(ids)]


def _restore(asker: Asker, **options: Any) -> tuple[int, int]:
    """Plan like `restore topics --dry-run`. Returns files and bytes."""
    from lakebackup.plan.topics.request import RestoreRequest, plan_restore

    request = RestoreRequest(asker.reader.home.uri, "file:/nowhere", source=SOURCE, dry_run=True, **options)
    plan = plan_restore(request, asker.reader)
    return plan.files, plan.bytes


def _restore_and_read(asker: Asker) -> int:
    """Plan a restore of all topics and read the files that it chose. Returns their number."""
    from lakebackup.plan.topics.request import RestoreRequest, plan_restore

    request = RestoreRequest(
        asker.reader.home.uri, "file:/nowhere", source=SOURCE, patterns=(".*",), to_ts=asker.instant(0.2)
    )
    plan = plan_restore(request, asker.reader)
    return plan.file.rows


def _window(asker: Asker) -> int:
    from_ts = asker.instant(0.5)
    parameters = {"source": SOURCE, "scopes": asker.topic, "to_ts": from_ts + HOUR_MS - 1}
    (id_range,) = asker.rows("restore_range", **parameters)
    return len(asker.rows("restore_files", **parameters, from_ts=from_ts, **id_range))


def _by_select(asker: Asker) -> tuple[int, int]:
    start = asker.instant(0.5)
    condition = (
        f"source = '{SOURCE}' AND scope = '{asker.topic}' AND min_ts BETWEEN {start} AND {start + HOUR_MS}"
    )
    select = f"SELECT destination, path FROM files WHERE {condition}"
    return _restore(asker, select=select, partial=True)


def _backup(asker: Asker) -> int:
    """Ask what the plan of the next backup asks. Returns the number of partitions."""
    from lakebackup.plan.parents import choose, covered_by
    from lakebackup.plan.partitions import TopicState
    from lakebackup.plan.topics.generations import read_generations
    from lakebackup_jobs.lifecycle.tasks.numbers import newest_files, next_backup

    choice = choose(asker.reader, SOURCE)
    covered = covered_by(asker.reader, SOURCE, choice.parent)
    topics = {c.scope: TopicState(c.scope, c.epoch, 1, 1, {}) for c in covered}
    read_generations(asker.reader, SOURCE, choice.parent, topics.values())
    next_backup(asker.reader, SOURCE)
    newest_files(asker.reader, SOURCE, topics.values(), {(c.scope, c.region) for c in covered})  # type: ignore[arg-type]
    return len(covered)


def _difference(asker: Asker, distance: int) -> int:
    from lakebackup.plan.diff import with_changes

    a, b = asker.facts["pairs"][distance]
    backups_by_id = {row["backup_id"]: row for row in asker.rows("diff_backups", a=a, b=b)}
    changes = with_changes(asker.reader, backups_by_id[a], backups_by_id[b])
    return sum(row["files"] for row in changes.rows("diff_totals"))


def _show(asker: Asker) -> int:
    backup_id = asker.reader.resolve_backup(asker.backup_id[:-2])
    asker.rows("show_backup", backup_id=backup_id)
    return len(asker.rows("show_scopes", backup_id=backup_id))


def _prune(asker: Asker) -> int:
    from lakebackup.plan.upkeep.prune import Leaving, plan_prune, window_of

    last_ts = asker.facts["last_ts"]
    reader = asker.reader.with_rows("policies", window_of(SOURCE, now_ms=last_ts, days=14))
    backups = tuple(Leaving(**row) for row in reader.rows("prune_backups", source=SOURCE))
    return plan_prune(asker.reader, SOURCE, backups=backups, now_ms=last_ts).gone_files


def _view(sql: str) -> Callable[[Asker], Any]:
    return lambda asker: asker.select(
        sql.format(topic=asker.topic, id=asker.backup_id, ts=asker.instant(0.5))
    )


RESTORE: dict[str, Callable[[Asker], Any]] = {
    "restore: files of one hour of one topic": _window,
    "restore of one topic to a time": lambda a: _restore(a, topics=(a.topic,), to_ts=a.instant(0.9)),
    "restore of one topic, newest": lambda a: _restore(a, topics=(a.topic,)),
    "restore of a backup": lambda a: _restore(a, topics=(a.topic,), backup=a.backup_id),
    "restore of what a SELECT chooses": _by_select,
    "restore of all topics to a fifth of the time": lambda a: _restore(
        a, patterns=(".*",), to_ts=a.instant(0.2)
    ),
    "the same, its files read": _restore_and_read,
}
BACKUP: dict[str, Callable[[Asker], Any]] = {
    "next backup": _backup,
    "tables behind": lambda a: len(a.reader.tables_behind()),
    "due: runs of the policy": lambda a: len(a.rows("policy_runs", source=SOURCE)),
}
PERSON: dict[str, Callable[[Asker], Any]] = {
    "list": lambda a: a.count("list_backups", source=None),
    "list of sources": lambda a: len(a.rows("list_sources")),
    "show --tree": lambda a: a.count("backup_tree", source=SOURCE),
    "show": _show,
    "show latest": lambda a: a.reader.resolve_backup("latest"),
    "files of a backup": lambda a: a.count("list_files", backup_id=a.backup_id),
    "diff of two in a row": lambda a: _difference(a, 1),
    "diff a day apart": lambda a: _difference(a, 96),
    "coverage": _view("SELECT status, count(*) FROM coverage GROUP BY status"),
    "coverage of a topic": _view("SELECT * FROM coverage WHERE scope = '{topic}'"),
    "rpo": _view("SELECT * FROM rpo"),
    "chains": _view("SELECT * FROM chains"),
    "restore_points of a topic": _view("SELECT * FROM restore_points WHERE scope = '{topic}' AND newest"),
    "restore_points, counted": _view("SELECT scope, count(*) FROM restore_points GROUP BY scope"),
    "unusable_backups": _view("SELECT * FROM unusable_backups"),
    "obsolete_backups": _view("SELECT status, count(*) FROM obsolete_backups GROUP BY status"),
    "growth": _view("SELECT * FROM growth"),
    "storage_by_source": _view("SELECT * FROM storage_by_source"),
    "last_success": _view("SELECT * FROM last_success"),
    "missed_runs": _view("SELECT * FROM missed_runs"),
    "unprotected_topics": _view("SELECT * FROM unprotected_topics"),
    "files of an instant": _view(
        "SELECT path FROM files WHERE scope = '{topic}' AND min_ts <= {ts} AND max_ts >= {ts}"
    ),
    "files, counted": _view("SELECT count(*), sum(bytes) FROM files"),
    "files of a path": _view(
        "SELECT * FROM files WHERE path LIKE 'made/%-0000000777.data' AND scope = '{topic}'"
    ),
    "lifetimes of a backup": _view("SELECT path, gone_in FROM lifetimes WHERE backup_id = '{id}'"),
    "positions of a backup": _view("SELECT * FROM positions WHERE backup_id = '{id}'"),
    "scopes of a topic": _view(
        "SELECT backup_id, settings FROM scopes WHERE scope = '{topic}' ORDER BY backup_id DESC LIMIT 10"
    ),
    "missing_files": _view("SELECT * FROM missing_files"),
    "plan of a prune": _prune,
}
QUESTIONS = RESTORE | BACKUP | PERSON


def facts(folder: str) -> dict[str, Any]:
    """Return the instants and ids of a synthetic catalog that the questions name."""
    reader = CatalogReader.require(folder)
    rows = reader.rows("every_backup")
    middle = len(rows) // 2
    return {
        "first_ts": rows[0]["end_ts"],
        "last_ts": rows[-1]["end_ts"],
        "ids": [rows[len(rows) * share // 10]["backup_id"] for share in (3, 5, 7)],
        "pairs": {n: (rows[middle]["backup_id"], rows[middle + n]["backup_id"]) for n in (1, 96)},
    }


def main(argv: Sequence[str]) -> None:
    """Ask each question once and `runs` times more."""
    engine, folder, runs, *questions = argv
    catalog_facts = facts(folder)
    if engine == "spark":
        from lakebackup_jobs.runtime.session import spark_session

        session = spark_session()
    cpu_s = Tree(os.getpid()).cpu_s if engine == "spark" else time.process_time  # of the JVM too

    for question in questions:

        def ask(run: int, question: str = question) -> Any:
            reader = CatalogReader.require(folder)
            return QUESTIONS[question](
                Asker(reader.with_spark(session) if engine == "spark" else reader, catalog_facts, run)
            )

        answer(ask, int(runs), cpu_s=cpu_s)


if __name__ == "__main__":
    main(sys.argv[1:])
