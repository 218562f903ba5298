"""The life of Spark's JVM; a shell script stands in for Java."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime import DAEMON
from lakebackup_jobs.runtime.java import jvm

SETTINGS = {"spark.master": "local[1]", "spark.driver.extraClassPath": ""}


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java that a test writes; its cache and this process's environment are the test's own."""
    program = tmp_path / "java" / "bin" / "java"
    program.parent.mkdir(parents=True)
    monkeypatch.setattr(jvm, "java_home", lambda: tmp_path / "java")
    monkeypatch.setattr("lakebackup_jobs.runtime.java.class_data.java_home", lambda: tmp_path / "java")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    return program


def write(java: Path, script: str) -> None:
    java.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    java.chmod(0o755)


def test_the_gateway_of_a_jvm_is_found(java: Path) -> None:
    answer = r"'\000\000\041\263\000\000\000\006secret'"
    write(
        java,
        f'printf {answer} > "$_PYSPARK_DRIVER_CONN_INFO_PATH".new\n'
        'mv "$_PYSPARK_DRIVER_CONN_INFO_PATH".new "$_PYSPARK_DRIVER_CONN_INFO_PATH"\nread _',
    )
    started = jvm.Jvm(SETTINGS)
    assert started.address() == started.address() == (8627, "secret")
    started.end(10)  # the script ends when its pipe is closed
    assert started.process.returncode == 1


def test_the_output_of_a_jvm_that_ended_is_in_the_error(java: Path) -> None:
    write(java, "echo too little memory >&2; exit 1")
    with pytest.raises(EnvironmentProblem, match=r"its JVM ended[\s\S]*too little memory"):
        jvm.Jvm(SETTINGS).address()


def test_a_jvm_that_still_starts_is_ended_at_once(java: Path) -> None:
    write(java, "exec sleep 60")
    started = jvm.Jvm(SETTINGS)
    start = time.monotonic()
    started.end(30)
    assert time.monotonic() - start < 20
    assert started.process.returncode is not None


def test_a_jvm_that_a_command_never_used_ends_with_the_command(java: Path, tmp_path: Path) -> None:
    write(java, "exec sleep 60")
    program = (
        "import sys; from pathlib import Path; from lakebackup_jobs.runtime.java import class_data, jvm\n"
        "jvm.java_home = class_data.java_home = lambda: Path(sys.argv[1])\n"
        "print(jvm.start({'spark.master': 'local[1]', 'spark.driver.extraClassPath': ''}).process.pid)"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    result = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "java")],
        env={**os.environ, "TMPDIR": str(temporary)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    with pytest.raises(ProcessLookupError):
        os.kill(int(result.stdout), 0)
    assert not list(temporary.iterdir())


def test_the_daemon_of_workers_ends_with_a_command_that_ran_no_task(java: Path) -> None:
    write(java, "read _")
    started = jvm.Jvm({**SETTINGS, "spark.python.daemon.module": DAEMON}, workers=True)
    assert started._daemon is not None
    started.end(10)
    assert started._daemon.wait(60) == 0


def test_no_daemon_is_started_when_another_module_is_set(java: Path) -> None:
    write(java, "read _")
    started = jvm.Jvm({**SETTINGS, "spark.python.daemon.module": "pyspark.daemon"}, workers=True)
    started.end(10)
    assert started._daemon is None


def test_a_java_that_does_not_start_is_an_environment_problem(java: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="Java does not start"):
        jvm.Jvm(SETTINGS)
    assert not java.exists()


def test_the_users_settings_are_in_the_command_of_a_jvm(java: Path, tmp_path: Path) -> None:
    user_settings = {"spark.driver.memory": "5g", "spark.driver.extraJavaOptions": "-Da=1 '-Db=2 3'"}
    words = jvm.command(SETTINGS | user_settings, "pyspark-shell", folder=tmp_path)
    assert words[0] == str(java)
    assert {"-Xmx5g", "-Da=1", "-Db=2 3", "spark.master=local[1]"} <= set(words)
    assert words[-1] == "pyspark-shell"
    assert "--properties-file" not in words


def test_secrets_are_in_a_file_for_this_account_alone(java: Path, tmp_path: Path) -> None:
    secrets = {"spark.hadoop.fs.s3a.secret.key": " a=b:c\\d#", "spark.ssl.keyPassword": "ä\n"}
    words = jvm.command(SETTINGS | secrets, "pyspark-shell", folder=tmp_path)
    assert words[0] == str(java)
    assert not any(name in word for word in words for name in secrets)
    file = Path(words[words.index("--properties-file") + 1])
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text("utf-8").splitlines() == [
        "spark.hadoop.fs.s3a.secret.key=\\ a\\=b\\:c\\\\d\\#",
        "spark.ssl.keyPassword=ä\\n",
    ]
