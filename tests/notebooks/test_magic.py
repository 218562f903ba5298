"""`%sql` and `%%sql` after `%load_ext lakebackup`, in IPython."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from tests.support.made_backups import MadeBackups, Record
from traitlets.config import Config

import lakebackup
from lakebackup.errors import UsageProblem

COUNT = "SELECT count(*) AS n FROM backups"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one backup of one record."""
    backups = MadeBackups(tmp_path_factory.mktemp("backups"))
    backups.backup([[Record(0, 0, 1, b"k", b"v")]], end_ts=2)
    backups.flush()
    return backups.folder


@pytest.fixture
def shell(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InteractiveShell]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("LAKEBACKUP_REPO", str(folder))
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    answer(shell, "%load_ext lakebackup")
    yield shell
    shell.restore_sys_module_state()


def answer(shell: InteractiveShell, cell: str) -> Any:
    """Runs a cell and returns its value. Raises the exceptions of the cell."""
    result = shell.run_cell(cell)
    result.raise_error()
    return result.result


def test_a_select_reads_the_repository_of_the_environment(shell: InteractiveShell) -> None:
    assert answer(shell, f"%sql {COUNT}").rows() == [{"n": 1}]
    assert answer(shell, f"%%sql\n{COUNT}\nWHERE number = 7").rows() == [{"n": 0}]
    assert answer(shell, "con.backups().rows()[0]['number']") == 1


def test_a_select_uses_con_of_the_notebook(shell: InteractiveShell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.user_ns["con"] = lakebackup.connect()
    monkeypatch.setenv("LAKEBACKUP_REPO", "/nowhere")
    assert answer(shell, f"%sql {COUNT}").rows() == [{"n": 1}]
    shell.user_ns["con"] = 7
    with pytest.raises(UsageProblem, match="con is a int, not a connection"):
        answer(shell, f"%sql {COUNT}")


def test_an_answer_is_kept_in_a_variable(shell: InteractiveShell) -> None:
    assert answer(shell, f"%%sql counted <<\n{COUNT}") is None
    assert answer(shell, "counted.rows()") == [{"n": 1}]
    assert answer(shell, f"%sql again << {COUNT}") is None
    assert answer(shell, "again.rows()") == [{"n": 1}]
    with pytest.raises(UsageProblem, match="begins on the next line"):
        answer(shell, f"%%sql SELECT 1\n{COUNT}")


def test_variables_are_parameters(shell: InteractiveShell) -> None:
    answer(shell, "key, topic = \"it's\", 'orders'")
    cell = "%%sql\nSELECT count(*) AS n FROM records(:topic) WHERE key = :key"
    assert answer(shell, cell).rows() == [{"n": 0}]
    assert answer(shell, "%sql SELECT '{key} $key' AS text").rows() == [{"text": "{key} $key"}]
    with pytest.raises(UsageProblem, match=":nothing has no value"):
        answer(shell, "%sql SELECT :nothing")


@pytest.mark.parametrize(
    "statement", ["DELETE FROM backups", "SELECT * FROM read_csv('/etc/passwd')", "SELECT 1; SELECT 2"]
)
def test_statements_that_con_sql_refuses_are_refused(
    shell: InteractiveShell, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageProblem):
        answer(shell, f"%%sql\n{statement}")
    err = capsys.readouterr().err
    assert err.startswith("UsageProblem: ")
    assert "Traceback" not in err
