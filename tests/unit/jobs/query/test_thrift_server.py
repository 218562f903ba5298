"""The views that the Thrift server reads from files follow the catalog."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.made_backups import MadeBackups, Record

from lakebackup.sql_engine import MATERIALIZED_VIEWS
from lakebackup_jobs.query import thrift_server
from lakebackup_jobs.query.thrift_server import SharedViews
from lakebackup_jobs.runtime.run_as import Account


def add_backup(destination: MadeBackups, end_ts: int) -> None:
    destination.backup([[Record(0, end_ts, end_ts - 1, b"k", b"v")]], end_ts=end_ts)
    destination.flush()


def test_shared_views_follow_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr(thrift_server.time, "monotonic", lambda: clock)
    destination = MadeBackups(tmp_path / "repo")
    add_backup(destination, 100)
    me = Account(pwd.getpwuid(os.geteuid()).pw_name, os.geteuid(), os.getegid())
    statements: list[str] = []
    views = SharedViews(f"file://{tmp_path}/repo/catalog", tmp_path / "views", me, statements.append)
    views.refresh()
    assert len(statements) == len(MATERIALIZED_VIEWS)

    def backup_count() -> int:
        (text,) = [text for text in statements[-len(MATERIALIZED_VIEWS) :] if "VIEW `backups`" in text]
        return pq.read_table(text.split("`")[3]).num_rows

    assert backup_count() == 1
    add_backup(destination, 200)
    views.refresh()
    assert backup_count() == 1  # too early to look again
    clock += 3
    views.refresh()
    assert backup_count() == 2
    clock += 3
    views.refresh()
    assert len(statements) == 2 * len(MATERIALIZED_VIEWS)  # nothing has changed
    clock += 61
    views.refresh()  # for the views that compare with the present
    assert len(statements) == 3 * len(MATERIALIZED_VIEWS)
    # A statement that was planned before reads the older files, however often they were replaced since.
    assert len(list((tmp_path / "views").iterdir())) == 3
    clock += 1800
    views.refresh()
    assert [path.name for path in sorted((tmp_path / "views").iterdir())] == ["1", "2", "3"]
