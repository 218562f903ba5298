"""`lakebackup manage` passes on what it is given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.made_backups import MadeBackups, Record

from lakebackup_jobs.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_source_and_the_catalog_are_passed_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = MadeBackups(tmp_path / "here")
    made.backup([[Record(0, 0)]])
    made.flush()
    catalog = (tmp_path / "here" / "catalog").rename(tmp_path / "catalog")

    def said(*arguments: str, code: int = 0) -> dict[str, Any]:
        assert main(["manage", *arguments, "--json"]) == code
        out = capsys.readouterr()
        found: dict[str, Any] = json.loads(out.err if code else out.out)
        return found

    where = (str(made.folder), "--catalog", str(catalog))
    assert said("--prune", "7", *where, "--source", "prod")["source"] == "prod"
    assert "nobody" in said("--prune", "7", *where, "--source", "nobody", code=3)["message"]
    assert said("--prune", "7", str(made.folder), code=3)["hint"]
    assert "every source" in said("--report", *where, "--source", "prod", code=2)["message"]
    assert "--merge LEVEL" in said(*where, code=2)["hint"]
