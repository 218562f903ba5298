"""`python -m tests.benchmarks.chains_ask TOOL FOLDER QUESTION RUNS` reports as asking.py says.

TOOL is duck, spark or plain. `plain` is Python over JSON manifests, and keeps only the rows that it needs.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.asking import answer
from tests.benchmarks.chains_data import HOUR_MS, KEPT_HOURS, SOURCE, TOPICS

if TYPE_CHECKING:
    from lakebackup.plan.upkeep.prune import TopicsPrune

CHAIN, PLAN, PROOF = "chain", "plan", "proof"
WINDOW_DAYS = 14
DAY_MS = 24 * HOUR_MS


def topic_and_time(run: int, end: int, backups: int) -> tuple[str, int]:
    """Return a topic and a time that differ in each run and are the same for all tools."""
    rng = random.Random(run)
    hours = min(backups, int(backups * 0.95))
    return f"t{rng.randrange(TOPICS):03d}", end - rng.randrange(1, hours * HOUR_MS)


class SqlCatalog:
    """Asks the catalog by its SQL, and plans as the commands do."""

    def __init__(self, folder: Path, engine: str) -> None:
        from lakebackup.store.reader import CatalogReader

        self._folder = folder
        self._reader = CatalogReader.require(str(folder))
        self._planner = CatalogReader(str(folder))
        if engine == "spark":
            from lakebackup_jobs.runtime.session import spark_session

            self._planner = self._planner.with_spark(spark_session())

    def chain(self, topic: str, to_ts: int) -> dict[str, Any]:
        """Plan like `lakebackup restore topics --dry-run`."""
        from lakebackup.plan.topics.request import RestoreRequest, plan_restore

        request = RestoreRequest(
            str(self._folder), "file:/nowhere", topics=(topic,), source=SOURCE, to_ts=to_ts, dry_run=True
        )
        plan = plan_restore(request, self._reader)
        if plan.obstacles:
            raise SystemExit(f"{topic} at {to_ts}: {plan.obstacles[0]}")
        return {"files": plan.files, "bytes": plan.bytes}

    def plan(self, end_ts: int) -> dict[str, Any]:
        """Plan like `lakebackup prune 14` at the time `end_ts`."""
        plan = self._plan(end_ts)
        return {"backups": len(plan.backups), "files": plan.gone_files, "bytes": plan.gone_bytes}

    def _plan(self, end_ts: int) -> TopicsPrune:
        from lakebackup.plan.upkeep.prune import Leaving, plan_prune, window_of
        from lakebackup.store.reader import CatalogReader

        window = window_of(SOURCE, now_ms=end_ts, days=WINDOW_DAYS)
        reader = CatalogReader(str(self._folder)).with_rows("policies", window)
        backups = tuple(Leaving(**row) for row in reader.rows("prune_backups", source=SOURCE))
        return plan_prune(self._planner, SOURCE, backups=backups, now_ms=end_ts)

    def proof(self, end_ts: int) -> dict[str, Any]:
        """Plan and prove like `lakebackup prune 14 --delete`, up to the first change."""
        plan = self._plan(end_ts)
        plan.require_proof(self._planner.with_rows("doomed", plan.file))
        return {"backups": len(plan.backups), "files": plan.gone_files, "bytes": plan.gone_bytes}


class JsonManifests:
    """Answers the same questions in plain Python over JSON manifests."""

    def __init__(self, folder: Path, _: str) -> None:
        self._folder = folder

    def chain(self, topic: str, to_ts: int) -> dict[str, Any]:
        """Count the files of the first backup that ends at or after the time, and of its ancestors."""
        backups = self._backups()
        newest_by_place = {row["place"]: row for row in backups}  # a merge comes after what it merges
        target = min((r for r in backups if r["end_ts"] >= to_ts), key=lambda r: (r["place"], r["number"]))
        rows = [
            row
            for backup in _chain_of(target, newest_by_place)
            for row in self._files(backup)
            if row["scope"] == topic and row["min_ts"] <= to_ts
        ]
        return {"files": len(rows), "bytes": sum(row["bytes"] for row in rows)}

    def plan(self, end_ts: int) -> dict[str, Any]:
        """Count backups that no restore into the window needs, and files too old for their topics."""
        backups = self._backups()
        obsolete_ids, _ = _obsolete_ids(backups, end_ts)
        files = size = 0
        kept_rows = []
        for backup in backups:
            if backup["backup_id"] in obsolete_ids:
                for row in self._files(backup):
                    files += 1
                    size += row["bytes"]
            else:
                kept_rows += self._files(backup)
        cut_rows = _rows_before_cutoff(kept_rows, backups[-1]["end_ts"] - KEPT_HOURS * HOUR_MS)
        size += sum(row["bytes"] for row in cut_rows)
        return {"backups": len(obsolete_ids), "files": files + len(cut_rows), "bytes": size}

    def proof(self, end_ts: int) -> dict[str, Any]:
        """Plan, and count the obsolete ancestors of backups that stay."""
        backups = self._backups()
        obsolete_ids, newest_by_place = _obsolete_ids(backups, end_ts)
        broken = sum(
            ancestor["backup_id"] in obsolete_ids
            for backup in backups
            if backup["backup_id"] not in obsolete_ids
            for ancestor in _chain_of(backup, newest_by_place)
        )
        return {**self.plan(end_ts), "broken": broken}

    def _backups(self) -> list[dict[str, Any]]:
        with (self._folder / "backups.jsonl").open(encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    def _files(self, backup: dict[str, Any]) -> Iterator[dict[str, Any]]:
        path = self._folder / "manifests" / f"{backup['backup_id']}.jsonl"
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)


def _chain_of(backup: dict[str, Any], newest_by_place: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    step: dict[str, Any] | None = backup
    while step:
        yield step
        step = newest_by_place[step["parent_place"]] if step["parent_place"] else None


def _obsolete_ids(backups: list[dict[str, Any]], end_ts: int) -> tuple[set[str], dict[int, dict[str, Any]]]:
    newest_by_place = {row["place"]: row for row in backups}
    oldest_by_place = {row["place"]: row for row in reversed(backups)}
    merged = {
        oldest_by_place[chain_place]["backup_id"]
        for row in backups
        if row["number"] != row["place"]
        for chain_place in range(row["parent_place"] + 1, row["place"] + 1)
    }
    window_start = end_ts - WINDOW_DAYS * DAY_MS
    usable = [row for row in backups if row["backup_id"] not in merged]
    older = [row for row in usable if row["end_ts"] <= window_start]
    fulls = [row for row in older if row["kind"] == "full"]
    if not fulls:
        targets = usable
    else:
        targets = [row for row in usable if row["end_ts"] > window_start]
        targets += [fulls[-1], max(older, key=lambda row: (row["place"], row["number"]))]
    needed_ids = {step["backup_id"] for row in targets for step in _chain_of(row, newest_by_place)}
    return {row["backup_id"] for row in backups} - needed_ids, newest_by_place


def _rows_before_cutoff(rows: list[dict[str, Any]], cutoff_ts: int) -> list[dict[str, Any]]:
    first_recent: dict[tuple[str, str], int] = {}
    last_positions: dict[tuple[str, str], int] = {}
    for row in rows:
        region = row["scope"], row["region"]
        last_positions[region] = max(last_positions.get(region, 0), row["end_position"])
        if row["max_ts"] >= cutoff_ts:
            first_recent[region] = min(first_recent.get(region, row["start_position"]), row["start_position"])
    return [
        row
        for row in rows
        if row["end_position"]
        <= first_recent.get((row["scope"], row["region"]), last_positions[row["scope"], row["region"]])
    ]


def answer_of(
    tool: SqlCatalog | JsonManifests, question: str, run: int, end: int, backups: int
) -> dict[str, Any]:
    """Return a tool's answer to a question."""
    if question == CHAIN:
        return tool.chain(*topic_and_time(run, end, backups))
    return tool.plan(end) if question == PLAN else tool.proof(end)


def main(argv: Iterable[str]) -> None:
    """Ask a question once and `runs` times more."""
    name, path, question, runs = argv
    folder = Path(path)
    end, backups = (int((folder / file).read_text("utf-8")) for file in ("end", "backups"))
    started = time.perf_counter()
    tool = JsonManifests(folder, name) if name == "plain" else SqlCatalog(folder, name)
    opened = time.perf_counter() - started
    answer(lambda run: answer_of(tool, question, run, end, backups), int(runs), opened=opened)


if __name__ == "__main__":
    main(sys.argv[1:])
