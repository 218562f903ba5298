"""`python -m tests.benchmarks.chains_ask TOOL FOLDER QUESTION RUNS` asks, as asking.py says.

TOOL is duck, spark or plain: Python over JSON manifests, which keeps nothing but what it must.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.asking import answer
from tests.benchmarks.chains_data import HOUR_MS, KEPT_HOURS, SOURCE, TOPICS

CHAIN, PLAN, PROOF = "chain", "plan", "proof"
WINDOW_DAYS = 14
DAY_MS = 24 * HOUR_MS


def asked(run: int, end: int, backups: int) -> tuple[str, int]:
    """Another topic and another time each run, the same for all tools."""
    chosen = random.Random(run)
    hours = min(backups, int(backups * 0.95))
    return f"t{chosen.randrange(TOPICS):03d}", end - chosen.randrange(1, hours * HOUR_MS)


class Ours:
    """The catalog by its SQL, planning as the commands do."""

    def __init__(self, folder: Path, engine: str) -> None:
        from lakebackup.store.reader import CatalogReader

        self._folder, self._name = folder, engine
        self._reader = CatalogReader.require(str(folder))
        self._engine: Any = CatalogReader(str(folder))
        if engine == "spark":
            from lakebackup.sql_engine.spark import SparkEngine
            from lakebackup_jobs.runtime.session import spark_session

            self._engine = SparkEngine(spark_session(), f"file://{folder}/catalog")

    def chain(self, topic: str, to_ts: int) -> dict[str, Any]:
        """As `lakebackup restore topics --dry-run` plans."""
        from lakebackup.plan.topics.request import RestoreRequest, plan_restore

        request = RestoreRequest(
            str(self._folder), "file:/nowhere", topics=(topic,), source=SOURCE, to_ts=to_ts, dry_run=True
        )
        made = plan_restore(request, self._reader)
        if made.obstacles:
            raise SystemExit(f"{topic} at {to_ts}: {made.obstacles[0]}")
        return {"files": made.files, "bytes": made.bytes}

    def plan(self, now: int) -> dict[str, Any]:
        """As `lakebackup prune 14` plans, at a time that stays the same."""
        from lakebackup.plan.upkeep.prune import Leaving, plan_prune, window_of
        from lakebackup.store.reader import CatalogReader

        reader = CatalogReader(str(self._folder))
        reader.give("policies", window_of(SOURCE, now=now, days=WINDOW_DAYS))
        backups = tuple(Leaving(**row) for row in reader.rows("prune_backups", source=SOURCE))
        made = plan_prune(self._engine, SOURCE, backups=backups, now=now)
        made.give(self._engine)
        return {"backups": len(backups), "files": made.gone_files, "bytes": made.gone_bytes}

    def proof(self, now: int) -> dict[str, Any]:
        """As `lakebackup prune 14 --delete` proves, from the plan to before the first change."""
        found = self.plan(now)
        if self._name == "spark":
            removals = self._engine.query("prune_removals", prune_id="p", at=0)
            removals.select("destination", "path").createOrReplaceTempView("doomed")
        else:
            self._engine.define("doomed", "prune_removals", prune_id="p", at=0)
        broken = (
            self._engine.rows("prune_proof", source=SOURCE),
            self._engine.rows("prune_chains", source=SOURCE),
        )
        return {**found, "broken": sum(map(len, broken))}


class Plain:
    """The same by plain Python over JSON manifests."""

    def __init__(self, folder: Path, _: str) -> None:
        self._folder = folder

    def chain(self, topic: str, to_ts: int) -> dict[str, Any]:
        """The first backup that ends at or after the time, and those that it stands on."""
        known = self._backups()
        newest = {row["place"]: row for row in known}  # a merge comes after what it merges
        target = min((r for r in known if r["end_ts"] >= to_ts), key=lambda r: (r["place"], r["number"]))
        chosen = [
            row
            for backup in _path(target, newest)
            for row in self._files(backup)
            if row["scope"] == topic and row["min_ts"] <= to_ts
        ]
        return {"files": len(chosen), "bytes": sum(row["bytes"] for row in chosen)}

    def plan(self, now: int) -> dict[str, Any]:
        """Backups that no restore into the window needs, and files that are too old for their topics."""
        known = self._backups()
        going, _ = _obsolete(known, now)
        files = size = 0
        kept = []
        for backup in known:
            if backup["backup_id"] in going:
                for row in self._files(backup):
                    files += 1
                    size += row["bytes"]
            else:
                kept += self._files(backup)
        cut = _cut(kept, known[-1]["end_ts"] - KEPT_HOURS * HOUR_MS)
        size += sum(row["bytes"] for row in cut)
        return {"backups": len(going), "files": files + len(cut), "bytes": size}

    def proof(self, now: int) -> dict[str, Any]:
        """Every backup that stays finds all that it stands on."""
        known = self._backups()
        going, newest = _obsolete(known, now)
        broken = sum(
            one["backup_id"] in going
            for backup in known
            if backup["backup_id"] not in going
            for one in _path(backup, newest)
        )
        return {**self.plan(now), "broken": broken}

    def _backups(self) -> list[dict[str, Any]]:
        with (self._folder / "backups.jsonl").open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def _files(self, backup: dict[str, Any]) -> Iterator[dict[str, Any]]:
        path = self._folder / "manifests" / f"{backup['backup_id']}.jsonl"
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _path(backup: dict[str, Any], newest: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    at: dict[str, Any] | None = backup
    while at:
        yield at
        at = newest[at["parent_place"]] if at["parent_place"] else None


def _obsolete(known: list[dict[str, Any]], now: int) -> tuple[set[str], dict[int, dict[str, Any]]]:
    newest = {row["place"]: row for row in known}
    by_place = {row["place"]: row for row in reversed(known)}
    merged = {
        by_place[place]["backup_id"]
        for row in known
        if row["number"] != row["place"]
        for place in range(row["parent_place"] + 1, row["place"] + 1)
    }
    since = now - WINDOW_DAYS * DAY_MS
    usable = [row for row in known if row["backup_id"] not in merged]
    before = [row for row in usable if row["end_ts"] <= since]
    fulls = [row for row in before if row["kind"] == "full"]
    if not fulls:
        staying = usable
    else:
        staying = [row for row in usable if row["end_ts"] > since]
        staying += [fulls[-1], max(before, key=lambda row: (row["place"], row["number"]))]
    needed = {one["backup_id"] for row in staying for one in _path(row, newest)}
    return {row["backup_id"] for row in known} - needed, newest


def _cut(rows: list[dict[str, Any]], cutoff_ts: int) -> list[dict[str, Any]]:
    young: dict[tuple[str, str], int] = {}
    most: dict[tuple[str, str], int] = {}
    for row in rows:
        region = row["scope"], row["region"]
        most[region] = max(most.get(region, 0), row["end_position"])
        if row["max_ts"] >= cutoff_ts:
            young[region] = min(young.get(region, row["start_position"]), row["start_position"])
    return [
        row
        for row in rows
        if row["end_position"] <= young.get((row["scope"], row["region"]), most[row["scope"], row["region"]])
    ]


def came_to(tool: Ours | Plain, question: str, run: int, end: int, backups: int) -> dict[str, Any]:
    """What a question comes to."""
    if question == CHAIN:
        return tool.chain(*asked(run, end, backups))
    return tool.plan(end) if question == PLAN else tool.proof(end)


def main(argv: Iterable[str]) -> None:
    """First answer and `runs` more."""
    name, place, question, runs = argv
    folder = Path(place)
    end, backups = (int((folder / file).read_text("utf-8")) for file in ("end", "backups"))
    started = time.perf_counter()
    tool = Plain(folder, name) if name == "plain" else Ours(folder, name)
    opened = time.perf_counter() - started
    answer(lambda run: came_to(tool, question, run, end, backups), int(runs), opened=opened)


if __name__ == "__main__":
    main(sys.argv[1:])
