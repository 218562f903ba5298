"""Archives of classes: which one fits the jars, and when one is made."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lakebackup_jobs.runtime.java import class_data


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two jars in two folders, as a class path; the cache is the test's own."""
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    jar_paths = [tmp_path / folder / "a.jar" for folder in ("ours", "spark")]
    for jar in jar_paths:
        jar.parent.mkdir()
        jar.write_bytes(b"classes")
    return os.pathsep.join(map(str, jar_paths))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The processes that would have been started."""
    commands: list[Any] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: commands.append(command))
    return commands


def write_archive(jars: str, content: bytes, *, sql: bool = True) -> Path:
    path = class_data.archive(jars, sql=sql)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    class_data.bytes_file(path).write_text(str(len(content)), "ascii")
    return path


def test_changed_jars_have_another_archive_that_replaces_the_old(jars: str) -> None:
    old_path = class_data.archive(jars)
    Path(jars.split(os.pathsep)[0]).write_bytes(b"other classes")
    new_path = class_data.archive(jars)
    assert new_path != old_path
    assert new_path.name.split("-")[0] == old_path.name.split("-")[0]


def test_jars_elsewhere_keep_an_archive_of_their_own(jars: str) -> None:
    single_jar_path = class_data.archive(jars.split(os.pathsep)[0])
    assert class_data.archive(jars).name.split("-")[0] != single_jar_path.name.split("-")[0]


def test_an_archive_is_used_once_it_exists(jars: str) -> None:
    assert class_data.java_options(jars) == []
    write_archive(jars, b"")  # it could not be made
    assert class_data.java_options(jars) == []
    path = write_archive(jars, b"classes")
    assert f"-XX:SharedArchiveFile={path}" in class_data.java_options(jars)
    os.truncate(path, 3)  # a JVM would crash on it
    assert class_data.java_options(jars) == []


def test_a_jvm_that_only_runs_tasks_has_an_archive_of_its_own(jars: str) -> None:
    write_archive(jars, b"classes")
    assert class_data.java_options(jars, sql=False) == []
    path = write_archive(jars, b"classes", sql=False)
    assert f"-XX:SharedArchiveFile={path}" in class_data.java_options(jars, sql=False)


@pytest.mark.parametrize("existing", [(), (True,), (False,)], ids=["both", "that for tasks", "that for SQL"])
def test_a_missing_archive_is_made(existing: tuple[bool, ...], jars: str, started: list[Any]) -> None:
    for sql in existing:
        write_archive(jars, b"classes", sql=sql)
    class_data.make_later(jars)
    assert [command[-1] for command in started] == ["lakebackup_jobs.runtime.class_data_maker"]


@pytest.mark.parametrize("content", [b"classes", b""], ids=["there", "tried before"])
def test_an_existing_archive_is_not_made_again(content: bytes, jars: str, started: list[Any]) -> None:
    for sql in (True, False):
        write_archive(jars, content, sql=sql)
    class_data.make_later(jars)
    assert started == []


def test_a_failed_archive_is_tried_again_after_a_day(jars: str, started: list[Any]) -> None:
    os.utime(write_archive(jars, b""), (0, 0))
    class_data.make_later(jars)
    assert len(started) == 1


def test_nothing_is_made_on_a_full_disk(
    jars: str, started: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: _FullDisk())
    class_data.make_later(jars)
    assert started == []


class _FullDisk:
    free = 100 << 20


def test_a_cache_that_cannot_be_written_stops_nothing(
    jars: str, started: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-file").touch()
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "a-file" / "cache"))
    class_data.make_later(jars)
    assert started == []
