"""Calls of all functions that a SELECT may use, with sizes that could exhaust a process; runs them."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import yaml

from lakebackup.sql_engine.guard.allowed import _SPARK

if TYPE_CHECKING:
    from lakebackup.errors import TimedOut

_FOLDER = Path(__file__).parents[1] / "unit" / "catalog" / "sql_engine"
RELATIONS = {
    "files": ["destination", "path", "backup_id", "bytes", "min_ts", "max_ts", "scope", "at"],
    "backups": ["backup_id", "number", "state", "end_ts"],
}
AGGREGATES = frozenset(_SPARK.split("\n\n")[0].split())
#: How a SELECT ended: with an answer, an error of lakebackup, another error, or the end of the process.
ANSWER, LAKEBACKUP_ERROR, FOREIGN, GIVEN_UP = "answer", "ours", "foreign", "given up"
SECONDS = 5.0


def statements() -> list[str]:
    """The statements of guard_hostile.yml, the sample call of each function with large numbers and texts, and
    the sample call of each aggregate over a million rows."""
    hand_written: list[str] = yaml.safe_load((_FOLDER / "guard_hostile.yml").read_text())
    functions: list[list[str]] = yaml.safe_load((_FOLDER / "guard_functions.yml").read_text())
    calls = [call for call, *_ in functions]
    aggregate_calls = [call for call in calls if call.partition("(")[0] in AGGREGATES]
    return [
        *hand_written,
        *(f"SELECT {large(call)} AS x FROM files" for call in calls),
        *(
            f"SELECT {of_each_row(call)} AS x FROM files CROSS JOIN range(1000000)"
            for call in aggregate_calls
        ),
    ]


def of_each_row(call: str) -> str:
    """A call whose columns differ in every row."""
    return re.sub(r"\bbytes\b", "(bytes + id)", re.sub(r"\bpath\b", "concat(path, id)", call))


def large(call: str) -> str:
    """A call whose integers are a million, as large as a written size may be, and whose columns and plain
    texts have a million characters."""
    call = re.sub(r"'([^'\\]*)'", lambda text: _long(text[0]) if _is_plain(call, text) else text[0], call)
    call = re.sub(r"(?<![\w.'])\bpath\b(?!')", "repeat(path, 200000)", call)
    call = re.sub(r"\barray\(\d+(, \d+)*\)", "sequence(1, 1000000)", call)
    return re.sub(r"(?<![\w.'%{,-])\d+(?![\w.'])(?=[^']*(?:'[^']*'[^']*)*$)", "1000000", call)


def _long(text: str) -> str:
    return f"repeat({text}, {1_000_000 // max(1, len(text) - 2)})"


def _is_plain(call: str, text: re.Match[str]) -> bool:
    """Whether a text is a value: not a date, a zone, a format or a path, nor the argument of a keyword."""
    return bool(re.fullmatch(r"'[\w ,]*'", text[0])) and not re.search(r"[A-Z]+ $", call[: text.start()])


def main(first: int) -> None:
    """Run the statements from the number `first` on, on Spark. Prints a line of JSON for each: its number,
    how it ended, seconds and error."""
    from lakebackup.errors import LakebackupError
    from lakebackup.sql_engine.guard.check import check_select
    from lakebackup.sql_engine.limits import Limits
    from lakebackup.sql_engine.spark import run_checked, streamed
    from lakebackup_jobs.runtime.session import spark_session

    spark = spark_session(extra={"spark.master": "local[2]"})
    spark.sql(
        "SELECT 'd' AS destination, \"a1/b'c\" AS path, 'b1' AS backup_id, 10L AS bytes, 0L AS min_ts, "
        "1000L AS max_ts, 't' AS scope, TIMESTAMP '2024-01-02 03:04:05.678' AS at"
    ).createOrReplaceTempView("files")
    for number, sql in list(enumerate(statements()))[first:]:
        started_at = time.monotonic()

        def report(
            outcome: str, detail: object = "", number: int = number, started_at: float = started_at
        ) -> None:
            print(json.dumps([number, outcome, time.monotonic() - started_at, str(detail)[:500]]), flush=True)

        def give_up(error: TimedOut) -> NoReturn:
            report(GIVEN_UP, error)
            os._exit(0)

        try:
            checked = check_select(sql, RELATIONS)
            limits = Limits(spark.interruptAll, seconds=SECONDS, give_up=give_up, memory=False)
            with limits.running():
                for batch in streamed(run_checked(spark, checked), sql):
                    del batch
        except LakebackupError as error:
            report(LAKEBACKUP_ERROR, error)
        except Exception as error:  # noqa: BLE001 - the test looks for such errors
            report(FOREIGN, f"{type(error).__name__}: {error}")
        else:
            report(ANSWER)


if __name__ == "__main__":
    main(int(sys.argv[1]))
