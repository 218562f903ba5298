"""The examples of docs/examples and the image. Each file is read by the program that will read it, if that is
installed, and the command line takes each of its commands."""

from __future__ import annotations

import ast
import configparser
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
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
UNITS = EXAMPLES / "systemd"
# docs/exit-codes.md: these are worth trying again, by whoever runs the command.
TRY_AGAIN = {6, 8}


def text(name: str) -> str:
    return (EXAMPLES / name).read_text("utf-8")


def require_known(*words: str) -> None:
    """Require that the command line takes these words after `lakebackup`. Nothing is run."""
    command: Any = typer.main.get_command(app)
    arguments = list(words)
    if "--config" in arguments:  # the file would be read
        flag = arguments.index("--config")
        del arguments[flag : flag + 2]
    while hasattr(command, "commands"):
        command = command.commands[arguments.pop(0)]
    command.make_context("lakebackup", arguments)


def error_codes() -> set[int]:
    """The exit codes of commands that failed, as docs/exit-codes.md lists them."""
    page = (ROOT / "docs/exit-codes.md").read_text("utf-8")
    return {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)} & set(range(1, 128))


# A command that succeeds prints its result on standard output; `status` that is not OK prints an error too.
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
    assert "LAKEBACKUP_REPO" in {variable.partition("=")[0] for variable in variables} or "--config /" in line
    require_cron(re.split(r"\s+", line, maxsplit=5)[5], program)


def unit_file(name: str) -> configparser.RawConfigParser:
    unit = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((UNITS / name).read_text("utf-8"), name)
    return unit


SERVICES = ["lakebackup-due", "lakebackup-metrics", "lakebackup-prune", "lakebackup-verify"]
KEYS = {
    "Unit": {"Description", "Wants", "After", "OnFailure", "StartLimitIntervalSec", "StartLimitBurst"},
    "Service": {
        "Type", "User", "Environment", "EnvironmentFile", "CacheDirectory", "StateDirectory", "Nice",
        "ProtectSystem", "ReadWritePaths", "PrivateTmp", "NoNewPrivileges", "ExecStart", "SuccessExitStatus",
        "StandardOutput", "Restart", "RestartSec", "RestartPreventExitStatus",
    },
    "Timer": {"OnCalendar", "Persistent", "RandomizedDelaySec"},
    "Install": {"WantedBy"},
}  # fmt: skip


def test_the_keys_of_the_units() -> None:
    """Where systemd is not installed, nothing else would notice a misspelled key."""
    for path in UNITS.rglob("*.*"):
        if path.is_file():
            unit = unit_file(str(path.relative_to(UNITS)))
            assert set(unit.sections()) <= set(KEYS), path
            for section in unit.sections():
                assert set(unit[section]) <= KEYS[section], path


def test_every_service_of_systemd_has_its_timer_and_a_known_command() -> None:
    assert sorted(path.stem for path in UNITS.glob("lakebackup-*.service")) == SERVICES
    assert sorted(path.stem for path in UNITS.glob("lakebackup-*.timer")) == SERVICES
    for name in SERVICES:
        program, *words = shlex.split(unit_file(f"{name}.service")["Service"]["ExecStart"])
        assert program == "/usr/local/bin/lakebackup"
        require_known(*words)
        assert unit_file(f"{name}.timer")["Install"]["WantedBy"] == "timers.target"


def test_a_failure_of_a_systemd_service_is_reported() -> None:
    """A status that is not OK is no failure of the service that writes the figures: alerts report it."""
    common = unit_file("lakebackup-.service.d/common.conf")
    assert common["Unit"]["OnFailure"] == "backup-failed@%N.service"
    assert "%i" in unit_file("backup-failed@.service")["Service"]["ExecStart"]
    successes = {
        name: unit_file(f"{name}.service")["Service"].get("SuccessExitStatus", "") for name in SERVICES
    }
    assert successes == {
        "lakebackup-due": "8", "lakebackup-metrics": "4 7", "lakebackup-prune": "", "lakebackup-verify": "",
    }  # fmt: skip
    prune = unit_file("lakebackup-prune.service")["Service"]
    assert {int(code) for code in prune["RestartPreventExitStatus"].split()} == error_codes() - TRY_AGAIN


def test_a_systemd_service_may_write_what_the_command_writes() -> None:
    """ProtectSystem=strict leaves it nothing else."""
    service = unit_file("lakebackup-.service.d/common.conf")["Service"]
    assert "LAKEBACKUP_CACHE=/var/cache/lakebackup" in service["Environment"].split()
    assert (service["CacheDirectory"], service["StateDirectory"]) == ("lakebackup", "lakebackup")
    metrics = unit_file("lakebackup-metrics.service")["Service"]
    assert Path(shlex.split(metrics["ExecStart"])[-1]).parent == Path(metrics["ReadWritePaths"])


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here")
    program = tmp_path / "lakebackup"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    folder = shutil.copytree(UNITS, tmp_path / "units")
    services, timers = sorted(folder.glob("*.service")), sorted(folder.glob("*.timer"))
    for path in services:
        path.write_text(path.read_text("utf-8").replace("/usr/local/bin/lakebackup", str(program)), "utf-8")
    process = subprocess.run(
        [analyze, "verify", "--man=no", *services, *timers], capture_output=True, text=True
    )
    assert [line for line in process.stderr.splitlines() if "backup" in line] == []


def test_the_site_draws_its_pictures_itself() -> None:
    """The theme would fetch what draws mermaid. The packages' layers are those of the import contracts."""
    pages = list(EXAMPLES.parent.rglob("*.md"))
    assert [page.name for page in pages if "```mermaid" in page.read_text("utf-8")] == []
    drawn = re.findall(
        r'font-weight="bold" [^>]*>(\w+)', (EXAMPLES.parent / "pictures/packages.svg").read_text("utf-8")
    )
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers_by_package = {
        contract["containers"][0]: contract["layers"] for contract in contracts if "containers" in contract
    }
    expected = [
        [name for layer in layers_by_package[package] for name in layer.split(" | ")]
        for package in ("lakebackup_jobs", "lakebackup")
    ]
    # The picture leaves out the generators of documents, the demonstration, plain types and how imports run.
    jobs, library = (
        [name for name in names if name not in ("demo", "lazy", "reference", "requests")]
        for names in expected
    )
    assert drawn[1 : len(jobs) + 1] == jobs
    assert sorted(drawn[len(jobs) + 2 : -1]) == sorted(library)
    assert (drawn[0], drawn[len(jobs) + 1], drawn[-1]) == ("lakebackup_jobs", "lakebackup", "lakebackup_sql")


def kubernetes() -> tuple[Any, Any, Any]:
    account, settings, job = yaml.safe_load_all(text("cronjob.yaml"))
    kinds = [(document["apiVersion"], document["kind"]) for document in (account, settings, job)]
    assert kinds == [("v1", "ServiceAccount"), ("v1", "ConfigMap"), ("batch/v1", "CronJob")]
    return account, settings, job


def test_kubernetes_runs_a_known_command_with_valid_settings() -> None:
    account, settings, job = kubernetes()
    valid = Settings.model_validate(tomllib.loads(settings["data"]["lakebackup.toml"]))
    assert str(valid.repo).startswith("s3://")
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    require_known(*container["args"])
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert container["image"] == f"lakebackup:{version}"
    assert spec["serviceAccountName"] == account["metadata"]["name"]
    volumes = {volume.pop("name"): volume for volume in spec["volumes"]}
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == set(volumes) == {"settings", "sts", "tmp"}
    assert volumes["settings"] == {"configMap": {"name": settings["metadata"]["name"]}}
    assert container["args"][-1] == f"{mounts['settings']}/lakebackup.toml"


def test_kubernetes_has_its_credentials_from_a_token_and_a_secret() -> None:
    _, settings, job = kubernetes()
    spec = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {variable.pop("name"): variable for variable in container["env"]}
    assert environment.pop("LAKEBACKUP_KAFKA__SASL_PASSWORD") == {
        "valueFrom": {"secretKeyRef": {"name": "lakebackup-kafka", "key": "sasl-password", "optional": True}}
    }
    assert set(environment) == {"AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE"}
    (volume,) = (volume for volume in spec["volumes"] if volume["name"] == "sts")
    (token,) = (source["serviceAccountToken"] for source in volume["projected"]["sources"])
    assert token["audience"] == "sts.amazonaws.com"
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "sts")
    expected = f"{mount['mountPath']}/{token['path']}"
    assert environment["AWS_WEB_IDENTITY_TOKEN_FILE"] == {"value": expected}
    assert spec["automountServiceAccountToken"] is False
    assert "password" not in settings["data"]["lakebackup.toml"]


def test_kubernetes_fails_the_job_unless_trying_again_may_help() -> None:
    job = kubernetes()[2]["spec"]
    assert job["concurrencyPolicy"] == "Forbid"
    template = job["jobTemplate"]["spec"]
    assert template["backoffLimit"] == 2
    (rule,) = template["podFailurePolicy"]["rules"]
    assert (rule["action"], rule["onExitCodes"]["operator"]) == ("FailJob", "In")
    assert set(rule["onExitCodes"]["values"]) == error_codes() - TRY_AGAIN
    assert template["template"]["spec"]["restartPolicy"] == "Never"  # else the policy is refused
    (container,) = template["template"]["spec"]["containers"]
    assert rule["onExitCodes"]["containerName"] == container["name"]


def test_kubernetes_gives_the_container_little() -> None:
    spec = kubernetes()[2]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert set(container["resources"]) == {"requests", "limits"}


@dataclass
class BashOperator:
    """Runs its command as Airflow's operator of this name does."""

    task_id: str
    bash_command: str
    env: dict[str, str]
    append_env: bool
    skip_on_exit_code: int = 99
    retries: int = 0
    retry_delay: object = None
    dag: str = field(init=False, default="")

    def execute(self, **variables: str) -> str:
        environment = (os.environ if self.append_env else {}) | self.env | variables
        bash = ["bash", "-c", self.bash_command]
        code = subprocess.run(bash, env=environment, capture_output=True).returncode
        return {0: "success", self.skip_on_exit_code: "skipped"}.get(code, "failed")


@pytest.fixture
def operators(monkeypatch: pytest.MonkeyPatch) -> dict[str, BashOperator]:
    """The tasks of the DAGs, by the name of their DAG."""
    by_dag: dict[str, BashOperator] = {}
    dags: list[str] = []

    def dag(name: str, **settings: object) -> AbstractContextManager[None]:
        assert settings["max_active_runs"] == 1
        dags.append(name)
        return nullcontext()

    def operator(**settings: Any) -> None:
        assert dags[-1] not in by_dag, "a task that follows would hide a failure of this one"
        by_dag[dags[-1]] = BashOperator(**settings)

    for name in (
        "airflow", "airflow.sdk", "airflow.providers", "airflow.providers.standard",
        "airflow.providers.standard.operators", "airflow.providers.standard.operators.bash",
    ):  # fmt: skip
        module = ModuleType(name)
        module.DAG, module.BashOperator = dag, operator  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(EXAMPLES / "airflow_dag.py"))
    return by_dag


def test_airflow_runs_known_commands(operators: dict[str, BashOperator]) -> None:
    assert list(operators) == ["lakebackup_due", "lakebackup_verify", "lakebackup_prune"]
    for operator in operators.values():
        name, *words = shlex.split(operator.bash_command)
        assert name == "lakebackup"
        require_known(*words)
        # A pipe, a list or `||` would end with the code of another command.
        assert re.fullmatch(r"[\w -]+", operator.bash_command)


def test_airflow_hides_no_failure_by_a_setting() -> None:
    """A DAG's run has the state of its last tasks: one that runs `all_done` would make it a success."""
    tree = ast.parse(text("airflow_dag.py"))
    arguments = {keyword.arg for keyword in ast.walk(tree) if isinstance(keyword, ast.keyword)}
    assert "bash_command" in arguments
    assert not arguments & {"trigger_rule", "soft_fail", "ignore_first_depends_on_past"}
    assert not any(isinstance(node, ast.Try) for node in ast.walk(tree))


def test_tasks_of_airflow_fail_where_there_is_no_repository(
    operators: dict[str, BashOperator], tmp_path: Path
) -> None:
    settings = tmp_path / "lakebackup.toml"
    settings.write_text(f'repo = "{tmp_path / "missing"}"\n', "utf-8")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for operator in operators.values():
        assert operator.execute(PATH=path, LAKEBACKUP_CONFIG=str(settings)) == "failed"


def test_tasks_of_airflow_fail_with_every_code_of_an_error(
    operators: dict[str, BashOperator], tmp_path: Path
) -> None:
    """A due run that finds another one at work is skipped instead."""
    program = tmp_path / "lakebackup"
    program.write_text("#!/bin/sh\nexit $CODE\n", "utf-8")
    program.chmod(0o755)
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    for name, operator in operators.items():
        states = {code: operator.execute(PATH=path, CODE=str(code)) for code in {0, *error_codes()}}
        expected = dict.fromkeys(error_codes(), "failed") | {0: "success"}
        if name == "lakebackup_due":
            expected[8] = "skipped"
        assert states == expected, name


def test_the_commands_of_the_page() -> None:
    page = text("README.md")
    commands = re.findall(r"`lakebackup ([^`]+)`", page) + re.findall(
        r"^lakebackup (.*)$", page, re.MULTILINE
    )
    assert commands
    for command in commands:
        require_known(*shlex.split(command, comments=True))


def test_the_image() -> None:
    """hadolint finds nothing. The image runs as an unprivileged user and fetches nothing when it runs."""
    dockerfile = ROOT / ".ci/Dockerfile"
    hadolint = Path(sys.executable).with_name("hadolint")
    process = subprocess.run([hadolint, dockerfile], capture_output=True, text=True)
    assert (process.returncode, process.stdout) == (0, "")
    lines = dockerfile.read_text("utf-8").splitlines()
    last = lines[max(i for i, line in enumerate(lines) if line.startswith("FROM ")) :]
    assert [line for line in last if line.startswith(("USER", "ENTRYPOINT"))] == [
        "USER 10001", 'ENTRYPOINT ["lakebackup"]',
    ]  # fmt: skip
    assert not any(line.startswith("ADD") for line in lines)
    assert "lakebackup_jobs.runtime.java.jars spark" in dockerfile.read_text("utf-8")
