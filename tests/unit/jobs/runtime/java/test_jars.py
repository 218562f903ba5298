from __future__ import annotations

import http.server
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from lakebackup.errors import EnvironmentProblem
from lakebackup_jobs.runtime.java import jars
from lakebackup_jobs.runtime.java.downloads import Download
from lakebackup_jobs.runtime.java.jars import Jar, cache_folder, class_path, pinned, pinned_bytes, work_folder

SHIPPED = Path(pyspark.__file__).parent / "jars"
SMALL = next(jar for jar in pinned("spark") if jar.name == "javax.annotation-api")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Maven repository on the loopback interface. Its library is the only one in the set `spark` here."""
    served = tmp_path / "mirror"
    folder = served / SMALL.group.replace(".", "/") / SMALL.name / SMALL.version
    folder.mkdir(parents=True)
    cached = next(path for path in class_path("spark").split(":") if path.endswith(SMALL.file))
    (folder / SMALL.file).write_bytes(Path(cached).read_bytes())
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(served))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            pass

    monkeypatch.setattr(jars, "pinned", lambda _: [SMALL])
    for variable in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setenv("LAKEBACKUP_MAVEN_URL", f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield folder / SMALL.file
        server.shutdown()
        thread.join()


def test_nothing_that_spark_ships_is_pinned() -> None:
    shipped = {re.sub(r"-\d[^-]*(-.*)?\.jar$", "", path.name) for path in SHIPPED.glob("*.jar")}
    assert "avro" in shipped
    assert {jar.name for jar in pinned("spark")} & shipped == set()


@pytest.mark.parametrize("jar_set", ["spark", "kafka"])
def test_every_library_is_pinned_once_with_a_digest(jar_set: jars.JarSet) -> None:
    listed = pinned(jar_set)
    assert len({(jar.group, jar.name) for jar in listed}) == len(listed) > 10
    assert all(re.fullmatch(r"[0-9a-f]{64}", jar.sha256) for jar in listed)


@pytest.mark.parametrize("jar_set", ["spark", "kafka"])
def test_the_bytes_of_a_set_are_those_of_its_libraries(jar_set: jars.JarSet) -> None:
    assert pinned_bytes(jar_set) == sum(Path(path).stat().st_size for path in class_path(jar_set).split(":"))


def test_a_download_has_the_name_and_the_bytes_so_far(tmp_path: Path) -> None:
    for name, suffix, size in (("delta-spark", "", 300), ("hadoop-aws", ".part", 100)):
        folder = tmp_path / "ivy/org.example" / name / "jars"
        folder.mkdir(parents=True)
        (folder / f"{name}-1-1.jar{suffix}").write_bytes(bytes(size))
    assert jars._download_state(tmp_path, 5, 1000) == Download("JVM libraries (hadoop-aws)", 1, 5, 400, 1000)


def test_cache_folder_prefers_our_variable_then_xdg_then_home(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path / "home")}
    assert cache_folder(env) == tmp_path / "home/.cache/lakebackup"
    env["XDG_CACHE_HOME"] = str(tmp_path / "xdg")
    assert cache_folder(env) == tmp_path / "xdg/lakebackup"
    env["LAKEBACKUP_CACHE"] = str(tmp_path / "own")
    assert cache_folder(env) == tmp_path / "own"


def test_without_a_writable_cache_logs_go_to_a_folder_of_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    assert work_folder() == tmp_path / "cache"
    (tmp_path / "file").touch()  # not even root can write below it
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "file/cache"))
    own = tmp_path / f"lakebackup-{os.getuid()}"
    assert work_folder() == work_folder() == own
    assert own.stat().st_mode & 0o777 == 0o700
    own.rmdir()
    own.symlink_to(tmp_path / "cache")
    with pytest.raises(EnvironmentProblem, match="another account"):
        work_folder()


@pytest.mark.spark
def test_a_library_is_fetched_once_and_then_used_offline(mirror: Path, tmp_path: Path) -> None:
    first = class_path("spark")
    assert Path(first).read_bytes() == mirror.read_bytes()
    mirror.unlink()
    assert class_path("spark") == first


@pytest.mark.spark
def test_a_torn_jar_is_fetched_again(mirror: Path, tmp_path: Path) -> None:
    jar = Path(class_path("spark"))
    jar.write_bytes(jar.read_bytes()[:1000])
    class_path("spark")
    assert jar.read_bytes() == mirror.read_bytes()


@pytest.mark.spark
def test_bytes_that_differ_from_the_pinned_digest_are_refused(mirror: Path, tmp_path: Path) -> None:
    mirror.write_bytes(b"something else")
    with pytest.raises(EnvironmentProblem, match=r"other bytes than pinned.*javax\.annotation-api"):
        class_path("spark")
    assert not list((tmp_path / "cache").rglob("*.jar"))


@pytest.mark.spark
def test_two_processes_at_once_fetch_a_library_once(mirror: Path, tmp_path: Path) -> None:
    program = (
        "from lakebackup_jobs.runtime.java import jars\n"
        f"jars.pinned = lambda _: [jars.Jar{(SMALL.group, SMALL.name, SMALL.version, SMALL.sha256)}]\n"
        "print(jars.class_path('spark'))"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) for _ in range(2)]
    answers = {process.communicate(timeout=60)[0] for process in processes}
    assert [process.returncode for process in processes] == [0, 0]
    assert len(answers) == 1
    assert [path.name for path in (tmp_path / "cache/jars/spark").glob("*.jar")] == [SMALL.file]
    assert not list((tmp_path / "cache").rglob(".fetch-*"))


@pytest.mark.spark
def test_no_network_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jars, "pinned", lambda _: [Jar("org.example", "nothing", "1", "0" * 64)])
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LAKEBACKUP_MAVEN_URL", "http://user:secret@127.0.0.1:9/")
    with pytest.raises(EnvironmentProblem, match=r"1 of 1 JVM libraries.*nothing-1\.jar") as caught:
        class_path("spark")
    assert "LAKEBACKUP_MAVEN_URL" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_a_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBACKUP_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").write_text("a file", "utf-8")
    with pytest.raises(EnvironmentProblem, match="cannot be written"):
        class_path("spark")


def test_proxy_variables_become_java_options() -> None:
    env = {
        "https_proxy": "http://proxy.example:8080",
        "HTTP_PROXY": "other:81",
        "no_proxy": "localhost,.local",
    }
    assert jars._proxy(env) == [
        "-Dhttp.proxyHost=other",
        "-Dhttp.proxyPort=81",
        "-Dhttps.proxyHost=proxy.example",
        "-Dhttps.proxyPort=8080",
        "-Dhttp.nonProxyHosts=localhost|*.local",
    ]
    assert jars._proxy({"no_proxy": "localhost"}) == []
