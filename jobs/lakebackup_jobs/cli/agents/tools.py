"""What agents may ask the catalog. Only `plan_restore` writes: it saves a plan for a person.

Each answer names the time at which the catalog was read (`as_of`), the SQL, the versions of the tables, and a
digest of the rows. The same question with that `as_of` reads the same state, so it gets the same digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shlex import join
from typing import Any

from lakebackup.errors import NotFound, Refused, TimedOut
from lakebackup.plan.topics import saved
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.plan.topics.request import plan_restore as plan_topics
from lakebackup.plan.topics.restore import RestorePlan, refusal
from lakebackup.requests import Request
from lakebackup.rules.times import format_ts, parse_time
from lakebackup.sql_engine import CLOCK, RAW, clock_at
from lakebackup.sql_engine.limits import Limits
from lakebackup.storage.nesting import require_outside
from lakebackup.store import trust
from lakebackup.store.behind import HINT, what_is_lost
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli.agents.arguments import (
    Bounded,
    CoverageQuestion,
    Question,
    Restore,
    RestorePlanRequest,
    RestoreQuestion,
    SelectQuestion,
    SourceQuestion,
)
from lakebackup_jobs.cli.agents.bounds import Bounds, Budget, bounded
from lakebackup_jobs.cli.flags.values import check_target, naming, now_ms
from lakebackup_jobs.query import record_query
from lakebackup_jobs.query.answer import Answer, Result
from lakebackup_jobs.query.parameters import bind
from lakebackup_jobs.topics.restore import describe_reads, save_plan
from lakebackup_sql import load

# The first and the last key of a file are values of records.
_RECORD_COLUMNS = {"files": ("start_key", "end_key")}
# Lists of a restore's description, those that matter most first.
_RESTORE_LISTS = ("topics", "obstacles", "notes", "backups", "alternatives", "partitions")


@dataclass(frozen=True, slots=True)
class _State:
    """The catalog as a question reads it. `is_present`: as it is now. `bounds`: those of the answer."""

    reader: CatalogReader
    as_of_ms: int
    is_present: bool
    bounds: Bounds

    def described(self) -> dict[str, Any]:
        """Return what an answer says about the state that was read."""
        pinned = self.reader.pinned().items()
        versions = {step.replace(RAW, ""): version for step, version in sorted(pinned)}
        problem = what_is_lost(self.reader) if self.is_present else None
        warnings = {"warnings": [f"{problem}\n{HINT}"]} if problem else {}
        return {"as_of": format_ts(self.as_of_ms), "versions": versions, **warnings}


class CatalogTools:
    """The tools, over the catalog of a repository. One thread at a time may use them.

    `most`: the bounds that no question can widen. `allow_records`: whether a SELECT may read records inside
    the backups. `plans`: the folder of saved plans; without it `plan_restore` is not offered. `give_up`: see
    `Limits`.
    """

    def __init__(
        self,
        destination: str,
        catalog: str | None,
        *,
        most: Bounds,
        allow_records: bool = False,
        plans: Path | None = None,
        give_up: Callable[[TimedOut], None] | None = None,
    ) -> None:
        """Raises NotFound (no catalog or folder), UsageProblem (the folder lies in a repository)."""
        CatalogReader.require(destination, catalog)
        if plans is not None:
            if not plans.is_dir():
                raise NotFound(f"There is no folder {plans}.", hint="Make it; plans are saved there.")
            require_outside(Request(destination, catalog=catalog), str(plans), is_file=True)
        self.most, self.plans, self.allows_records = most, plans, allow_records
        self._destination, self._catalog, self._give_up = destination, catalog, give_up

    def sources(self, question: Question) -> dict[str, Any]:
        """Return the sources: their kinds, and how many backups and topics they have."""
        return self._statement(question, "summarize_sources", {})

    def status(self, question: SourceQuestion) -> dict[str, Any]:
        """Return the rows of `lakebackup status`."""
        return self._statement(question, "list_status", {"source": question.source})

    def coverage(self, question: CoverageQuestion) -> dict[str, Any]:
        """Return the rows of the view `coverage`."""
        parameters = {"source": question.source, "topic": question.topic}
        return self._statement(question, "list_coverage", parameters)

    def ask(self, question: SelectQuestion) -> dict[str, Any]:
        """Return the rows of a SELECT, which the guard of `lakebackup sql` checks. Raises as `sql` does."""
        return self._rows(question, question.sql)

    def explain_restore(self, question: RestoreQuestion) -> dict[str, Any]:
        """Return what a restore would read, its totals, and what blocks it: a dry run without a target."""
        with self._reading(question, question.as_of) as state:
            request = self._restore_request(question, target="dir:restored")
            plan = plan_topics(request, state.reader)
            return self._described(request, plan, state)

    def plan_restore(self, question: RestorePlanRequest) -> dict[str, Any]:
        """Save the plan of a restore as `--save-plan` does; returns what `explain_restore` does, too.

        A plan that is there already is not written again. Nothing looks at the target before a person carries
        the plan out.
        """
        if self.plans is None:
            raise NotFound("This server saves no plans.", hint="Start it with --plans FOLDER.")
        with self._reading(question, None) as state:
            target = check_target(question.to, files=True)
            _require_named(target)
            request = self._restore_request(question, target=target, maps=question.maps)
            plan = plan_topics(request, state.reader)
            description = self._described(request, plan, state)
            identity = f"{request.digest(plan.source)} {description['digest']}"
            name = f"restore-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.json"
            path = self.plans.absolute() / name
            is_new = not path.exists()
            if is_new:
                save_plan(replace(request, save_plan=str(path)), plan, state.reader)
            else:
                saved.read(path)
        locations = ["--repo", self._destination, *(["--catalog", self._catalog] if self._catalog else [])]
        command = join(["lakebackup", "restore", "topics", "--plan", str(path), *locations])
        return {**description, "target": target, "plan": str(path), "saved": is_new, "command": command}

    def _statement(self, question: Question, name: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The rows of a statement of `sql/queries`, as a SELECT that `ask` can repeat."""
        return self._rows(question, bind(load("queries", name).strip(), parameters))

    def _rows(self, question: Question, sql: str) -> dict[str, Any]:
        with self._reading(question, question.as_of) as state:
            rows = self._selected(state, sql)
            return {**state.described(), "sql": sql, **rows}

    def _selected(self, state: _State, sql: str) -> dict[str, Any]:
        """The first rows of a SELECT. When this returns, nothing refers to the rows that were not read.

        DuckDB runs no other statement before.
        """
        reader = state.reader
        result = record_query.select(reader, sql) if self.allows_records else Result(reader.select(sql))
        answer = Answer(lambda: result)
        rows = bounded(answer.batches(), state.bounds)
        readings = [asdict(reading) for reading in answer.readings]
        return {**asdict(rows), **({"records": readings} if readings else {})}

    def _restore_request(
        self, question: Restore, *, target: str, maps: Mapping[str, str] = {}
    ) -> RestoreRequest:
        return RestoreRequest(
            self._destination,
            target,
            tuple(question.topics),
            catalog=self._catalog,
            source=question.source,
            maps=maps,
            to_ts=_instant("to_time", question.to_time),
            from_ts=_instant("from_time", question.from_time),
        )

    def _described(self, request: RestoreRequest, plan: RestorePlan, state: _State) -> dict[str, Any]:
        """Describe a plan. Its digest is that of its files, as in a saved plan."""
        reads = describe_reads(request, plan, state.reader)
        budget = Budget(state.bounds)
        lists = {name: [*budget.fitting(reads.pop(name, ()))] for name in _RESTORE_LISTS}
        error = refusal(plan, request.accepted)
        return {
            **state.described(),
            "sql": reads.pop("selection"),
            "digest": saved.digest_of(plan.file),
            **reads,
            **lists,
            "complete": not budget.cut,
            "refused": error and error.message,
            "hint": error.hint if error else "",
        }

    @contextmanager
    def _reading(self, question: Bounded, as_of: str | None) -> Iterator[_State]:
        """Read the catalog within the bounds of a question, as of a time, or as it is now."""
        bounds = self.most.narrowed(question.model_dump(include={"rows", "bytes", "seconds"}))
        present_ms, as_of_ms = now_ms(), _instant("as_of", as_of)
        is_present = as_of_ms is None
        reader = CatalogReader.require(
            self._destination,
            self._catalog,
            as_of=None if as_of_ms is None else as_of_ms * 1000,
            hidden={} if self.allows_records else _RECORD_COLUMNS,
        )
        limits = Limits(reader.interrupt, seconds=bounds.seconds, give_up=self._give_up)
        with limits.running():
            if is_present:
                # The present stands still, so that the same question as of this time gets the same rows.
                reader = reader.with_rows(CLOCK, clock_at(present_ms))
            yield _State(reader, present_ms if as_of_ms is None else as_of_ms, is_present, bounds)


def _require_named(target: str) -> None:
    """Raise Refused for a Kafka cluster that the settings of this machine do not name.

    Whoever carries out a plan sends the passwords of the settings to the servers of its target.
    """
    scheme, _, servers = target.partition("://")
    if scheme == "kafka" and servers not in trust.local().servers:
        raise Refused(
            f"The settings of this machine do not name the cluster {servers}.",
            hint="A person can add it to `servers` under [approved], or restore there without this plan.",
        )


def _instant(argument: str, text: str | None) -> int | None:
    """The time of an argument, in ms since 1970 UTC. Raises UsageProblem, which names the argument."""
    with naming(argument):
        return None if text is None else parse_time(text, now_ms())
