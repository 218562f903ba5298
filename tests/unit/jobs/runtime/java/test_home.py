from __future__ import annotations

import os
from pathlib import Path

import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime.java.home import java_home


def fake_java(folder: Path, answer: str, code: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat <<'END' >&2\n{answer}\nEND\nexit {code}\n", "utf-8")
    program.chmod(0o755)
    return folder


def settings(version: str, home: str = "/opt/java") -> str:
    return f"Property settings:\n    java.home = {home}\n    java.specification.version = {version}\n"


def test_the_java_of_this_machine_is_found() -> None:
    assert (java_home() / "bin" / "java").is_file()


@pytest.mark.parametrize("version", ["17", "21"])
def test_java_home_is_honoured(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path, settings(version, home=f"/opt/java-{version}"))
    home = java_home({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})
    assert home == Path(f"/opt/java-{version}")


@pytest.mark.parametrize("version", ["1.8", "11", "25"])
def test_a_wrong_version_is_named(tmp_path: Path, version: str) -> None:
    fake_java(tmp_path, settings(version))
    with pytest.raises(EnvironmentProblem, match=f"is Java {version}; Java 17 or 21 is needed"):
        java_home({"JAVA_HOME": str(tmp_path)})


def test_a_machine_without_java_is_told_to_install_one(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="No Java found") as caught:
        java_home({"PATH": str(tmp_path)})
    assert "Install a JDK 17 or 21" in str(caught.value)


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="no bin/java in it"):
        java_home({"JAVA_HOME": str(tmp_path), "PATH": os.environ["PATH"]})


def test_a_stub_that_only_prints_a_message_is_refused(tmp_path: Path) -> None:
    fake_java(tmp_path, "Unable to locate a Java Runtime.", code=1)
    with pytest.raises(EnvironmentProblem, match=r"not a working Java: Unable to locate"):
        java_home({"PATH": str(tmp_path / "bin") + ":/bin:/usr/bin"})
