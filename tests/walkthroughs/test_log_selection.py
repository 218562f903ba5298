"""Three logs, and a span of each: which files a restore reads, chosen by SQL in a catalog on DuckDB.

A transaction writes its values before it commits. So the files of values that a span needs begin where the
earliest of its writes did, which is before the span: the shift. w(4,10,3) is a file of writes committed at 4
to 10, of which the first began at 3; d(1,3) one of values written at 1 to 3.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.support.catalogs import backup_id, made_backup
from tests.support.made_backups import MadeBackups

from lakebackup.plan.logs.restore import LogRestoreRequest, plan_restore
from lakebackup.rows.backups import Backup, DataFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("flushes", "span", "shift", "read"),
    [
        pytest.param(
            ["w(4,10,3) w(5,13,5)", "d(1,3)", "w(10,42,9) d(6,9)"],
            (4, 5),
            3,
            "d(1,3) w(4,10,3) w(5,13,5)",
            id="values of a flush of their own",
        ),
        pytest.param(
            ["w(1,100,1) w(5,13,5) d(1,101)", "w(100,200,98) d(100,200)"],
            (50, 99),
            1,
            "d(1,101) w(1,100,1)",
            id="a transaction that took long",
        ),
        pytest.param(
            ["d(2,6) w(4,5,2)", "w(50,54,42) d(42,50) w(70,78,-)", "d(100,101) w(102,104,100)"],
            (2, 60),
            2,
            "d(2,6) d(42,50) w(4,5,2) w(50,54,42)",
            id="what began after the span",
        ),
    ],
)
def test_what_a_restore_reads(
    tmp_path: Path, flushes: list[str], span: tuple[int, int], shift: int, read: str
) -> None:
    made = MadeBackups(tmp_path, "shop")
    for number, files in enumerate(flushes, 1):
        made.add(_flush(made.destination, number))
        made.add(*(_file(made.destination, number, name) for name in files.split()))
    reader = made.reader()
    # Both ends of the span are in it; a restore leaves its start out.
    asked = LogRestoreRequest(destination="", name="shop", start_ts=span[0] - 1, end_ts=span[1])
    plan = plan_restore(asked, reader)
    rows = [row for cf in ("default", "write") for row in reader.rows("log_restore_order", cf=cf, ends=False)]
    assert " ".join(row["path"] for row in rows) == read
    assert (plan.begin_ts, plan.writes.files + plan.values.files) == (shift, len(rows))


def _flush(destination: str, number: int) -> Backup:
    parent = number - 1 if number > 1 else None
    chain = {"parent": parent and backup_id(parent), "parent_place": parent, "base": backup_id(1)}
    return made_backup(
        number, source="shop", source_kind="changes", destination=destination, kind="log", level=1, **chain,
        chain_position=number - 1, ts_domain="tso", start_ts=1000 * (number - 1), codec="zstd",
    )  # fmt: skip


def _file(destination: str, number: int, name: str) -> DataFile:
    cf, low, high, *begin = re.findall(r"\w+|-", name)
    return DataFile(
        destination=destination, path=name, backup_id=backup_id(number), added_in=number, source="shop",
        scope="1", epoch="-", region="1", format="log-arrow-1", codec="zstd", bytes=10, raw_bytes=20,
        sha256="00", entries=3, min_ts=int(low), max_ts=int(high),
        min_begin_ts=int(begin[0]) if begin and begin[0] != "-" else None, start_position=0, end_position=1,
        start_key="61", end_key="62", cf="write" if cf == "w" else "default", op="put",
    )  # fmt: skip
