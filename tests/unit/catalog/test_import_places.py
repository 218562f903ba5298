"""Imports stand at the top of a file, types too; each exception has its reason here."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]

#: Why an import stands in a function, for each file that has any.
IN_FUNCTIONS = {
    "jobs/lakebackup_jobs/lifecycle/tasks/worker_daemon.py": "loaded for the processes that are forked later",
    "jobs/lakebackup_jobs/lifecycle/workspace.py": "loaded in this thread, before others need it",
    "jobs/lakebackup_jobs/query/answer.py": "its absence is an error of its own",
    "jobs/lakebackup_jobs/runtime/bootstrap.py": "its absence is an error of its own",
}


def test_imports_stand_at_the_top_of_a_file() -> None:
    files = {
        str(path.relative_to(ROOT))
        for package in ("catalog", "jobs", "sql")
        for path in ROOT.joinpath(package).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(function, ast.FunctionDef)
        if any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(function))
    }
    assert files == set(IN_FUNCTIONS)


#: Why a file has imports for type checkers alone.
FOR_TYPES = {
    "catalog/lakebackup/__init__.py": "what `connect` returns has types of lakebackup_jobs",
    "catalog/lakebackup/lazy.py": "runs before imports are lazy",
    "catalog/lakebackup/requests.py": "exists for type checkers alone",
    "catalog/lakebackup/rows/base.py": "exists for type checkers alone",
    "catalog/lakebackup/rows/tables.py": "exists for type checkers alone",
    "catalog/lakebackup/storage/s3_client.py": "exists for type checkers alone",
    "catalog/lakebackup/storage/s3_send.py": "exists for type checkers alone",
    "catalog/lakebackup/store/manifest.py": "exists for type checkers alone",
    "jobs/lakebackup_jobs/cli/verb.py": "exists for type checkers alone",
}


def test_types_are_imported_like_everything_else() -> None:
    files = {
        str(path.relative_to(ROOT))
        for package in ("catalog", "jobs", "sql")
        for path in ROOT.joinpath(package).rglob("*.py")
        if "if TYPE_CHECKING" in path.read_text("utf-8")
    }
    assert files == set(FOR_TYPES)


def test_no_name_of_a_package_is_that_of_a_module_in_it() -> None:
    """Python sets the name of a module in its package, in place of an import that has not run yet."""
    clashes = []
    for package in ("catalog", "jobs", "sql"):
        for path in ROOT.joinpath(package).rglob("__init__.py"):
            modules = {entry.stem for entry in path.parent.iterdir()}
            clashes += [
                f"{path.relative_to(ROOT)}: {alias.asname or alias.name}"
                for statement in ast.parse(path.read_text("utf-8")).body
                if isinstance(statement, ast.Import | ast.ImportFrom)
                for alias in statement.names
                if (alias.asname or alias.name) in modules
            ]
    assert clashes == ["catalog/lakebackup/__init__.py: lazy"]  # it is the module
