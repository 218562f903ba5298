from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime.bootstrap import ROOT, check_python, digest


def test_supported_pythons_pass() -> None:
    for minor in (11, 12, 13):
        check_python((3, minor, 0))


@pytest.mark.parametrize("version", [(3, 10, 9), (3, 14, 0)])
def test_other_pythons_are_named(version: tuple[int, int, int]) -> None:
    with pytest.raises(EnvironmentProblem, match=rf"is Python 3\.{version[1]}.*3\.11, 3\.12 or 3\.13"):
        check_python(version)


def test_a_digest_changes_with_files_and_words(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("one", "utf-8")
    first_digest = digest([lock], "3.11.7")
    assert digest([lock], "3.11.7") == first_digest != digest([lock], "3.12.0")
    lock.write_text("two", "utf-8")
    assert digest([lock], "3.11.7") != first_digest


def test_the_bootstrap_needs_no_package_and_says_what_is_missing(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-S", "-m", "lakebackup_jobs.runtime.bootstrap"],
        env={"PYTHONPATH": f"{ROOT}/catalog:{ROOT}/jobs", "PATH": str(tmp_path)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (result.returncode, result.stdout) == (6, "")
    assert result.stderr.startswith("error: No Java found")


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs make as a person does, also when the tests themselves run below make."""
    own_prefixes = ("MAKE", "MFLAGS", "PYTHON")
    env = {name: value for name, value in os.environ.items() if not name.startswith(own_prefixes)}
    return subprocess.run(
        ["make", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=60
    )


def test_make_names_the_missing_python() -> None:
    result = make("setup", "PYTHON=")
    assert result.returncode == 2
    assert "error: no Python 3.11, 3.12 or 3.13 found" in result.stderr


def test_make_help_lists_every_target() -> None:
    declared = (ROOT / "Makefile").read_text("utf-8").split(".PHONY: ")[1].splitlines()[0].split()
    assert [line.split()[0] for line in make("help").stdout.splitlines()] == declared
