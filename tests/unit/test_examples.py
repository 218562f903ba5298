"""The examples of docs/examples and the image: each file is read by what will read it, as far as that is
here, and each of its commands is one that the command line takes."""

from __future__ import annotations

import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
import yaml

from lakebackup.config import Settings
from lakebackup_jobs.cli.app import app

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs/examples"


def text(name: str) -> str:
    return (EXAMPLES / name).read_text("utf-8")


def require_known(*words: str) -> None:
    """The command line takes these words after `lakebackup`; nothing is run."""
    command: Any = typer.main.get_command(app)
    left = list(words)
    while hasattr(command, "commands"):
        command = command.commands[left.pop(0)]
    command.make_context("lakebackup", left)


# Exit code 0 has the result on standard output; `status` that is not OK an error too.
QUIET = {
    "due": "/dev/null",
    "verify": "/dev/null",
    "prune": "/dev/null",
    "report": "/dev/null",
    "status": "/dev/null 2>&1",
}


def require_cron(command: str, program: str) -> None:
    """cron runs the command and mails nothing but errors and warnings."""
    command, _, output = command.partition(" >")
    name, *words = shlex.split(command)
    assert name == program
    require_known(*words)
    assert output == QUIET[words[0]], command


def test_cron() -> None:
    content = text("crontab")
    lines = [line for line in content.splitlines() if line[:1].isdigit() or line[:1] == "*"]
    assert len(lines) == 4
    for line in lines:
        *_, account, command = re.split(r"\s+", line, maxsplit=6)
        assert account == "lakebackup"
        require_cron(command, "lakebackup")
    assert "PATH=/usr/local/bin:/usr/bin:/bin" in content.splitlines()  # cron's own lacks the first


@pytest.mark.parametrize(
    ("page", "program"),
    [
        ("quickstart.md", "/home/me/lakebackup/bin/lakebackup"),
        ("monitoring/README.md", "/usr/local/bin/lakebackup"),
        ("report/README.md", "/usr/local/bin/lakebackup"),
    ],
)
def test_cron_of_the_pages(page: str, program: str) -> None:
    """cron has neither the settings nor the PATH of a shell."""
    content = (EXAMPLES.parent / page).read_text("utf-8")
    (block,) = re.findall(r"^```cron\n(.*?)^```$", content, re.MULTILINE | re.DOTALL)
    *variables, line = block.splitlines()
    assert "LAKEBACKUP_DESTINATION" in {one.partition("=")[0] for one in variables} or "--config /" in line
    require_cron(re.split(r"\s+", line, maxsplit=5)[5], program)


def test_systemd(tmp_path: Path) -> None:
    service = text("lakebackup.service")
    (command,) = re.findall(r"^ExecStart=/usr/local/bin/lakebackup (.*)$", service, re.MULTILINE)
    require_known(*shlex.split(command))
    # ProtectSystem leaves a service nothing else to write the JVM libraries to.
    assert {"Environment=LAKEBACKUP_CACHE=/var/cache/lakebackup", "CacheDirectory=lakebackup"} < set(
        service.splitlines()
    )
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here")
    program = tmp_path / "lakebackup"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for name in ("lakebackup.service", "lakebackup.timer"):
        content = text(name).replace("/usr/local/bin/lakebackup", str(program))
        (tmp_path / name).write_text(content)
    units = [str(tmp_path / name) for name in ("lakebackup.service", "lakebackup.timer")]
    done = subprocess.run([analyze, "verify", "--man=no", *units], capture_output=True, text=True)
    said = [line for line in done.stderr.splitlines() if "lakebackup" in line]
    assert said == []


def test_the_site_draws_its_pictures_itself() -> None:
    """The theme would fetch what draws mermaid. The packages' floors are those of the import contracts."""
    pages = list(EXAMPLES.parent.rglob("*.md"))
    assert [page.name for page in pages if "```mermaid" in page.read_text("utf-8")] == []
    drawn = re.findall(
        r'font-weight="bold" [^>]*>(\w+)', (EXAMPLES.parent / "pictures/packages.svg").read_text("utf-8")
    )
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    floors = {one["containers"][0]: one["layers"] for one in contracts if "containers" in one}
    expected = [
        [name for floor in floors[package] for name in floor.split(" | ")]
        for package in ("lakebackup_jobs", "lakebackup")
    ]
    # Not in the picture: what makes the documents, the demonstration, and plain types.
    jobs, library = (
        [name for name in names if name not in ("demo", "reference", "requests")] for names in expected
    )
    assert drawn[1 : len(jobs) + 1] == jobs
    assert sorted(drawn[len(jobs) + 2 : -1]) == sorted(library)
    assert (drawn[0], drawn[len(jobs) + 1], drawn[-1]) == ("lakebackup_jobs", "lakebackup", "lakebackup_sql")


def test_kubernetes() -> None:
    settings, job = yaml.safe_load_all(text("cronjob.yaml"))
    Settings.model_validate(tomllib.loads(settings["data"]["lakebackup.toml"]))
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    require_known(*[one for one in container["args"] if one != "--config" and not one.startswith("/etc")])
    assert spec["securityContext"]["runAsUser"] == 10001
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert container["image"] == f"lakebackup:{version}"
    volumes = {one["name"] for one in spec["volumes"]}
    assert {one["name"] for one in container["volumeMounts"]} == volumes


def test_airflow_with_a_stand_in_for_its_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: dict[str, str] = {}

    class StandIn(AbstractContextManager[None]):
        def __init__(self, *_: object, task_id: str = "", bash_command: str = "", **__: object) -> None:
            if task_id:
                commands[task_id] = bash_command

        def __exit__(self, *_: object) -> None: ...

        def __rshift__(self, other: StandIn) -> StandIn:
            return other

    for name in (
        "airflow", "airflow.sdk", "airflow.providers", "airflow.providers.standard",
        "airflow.providers.standard.operators", "airflow.providers.standard.operators.bash",
    ):  # fmt: skip
        module = ModuleType(name)
        module.DAG = module.BashOperator = StandIn  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(EXAMPLES / "airflow_dag.py"))
    assert list(commands) == ["due", "verify", "report"]
    for command in commands.values():
        name, *words = shlex.split(command)
        assert name == "lakebackup"
        require_known(*words)


def test_the_image() -> None:
    """hadolint finds nothing; it runs as nobody special, and fetches nothing when it runs."""
    dockerfile = ROOT / ".ci/Dockerfile"
    hadolint = Path(sys.executable).with_name("hadolint")
    done = subprocess.run([hadolint, dockerfile], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    lines = dockerfile.read_text("utf-8").splitlines()
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert [line for line in last if line.startswith(("USER", "ENTRYPOINT"))] == [
        "USER 10001", 'ENTRYPOINT ["lakebackup"]',
    ]  # fmt: skip
    assert not any(line.startswith("ADD") for line in lines)
    assert "lakebackup_jobs.runtime.java.jars spark" in dockerfile.read_text("utf-8")
