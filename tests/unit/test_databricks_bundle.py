"""The bundle of docs/examples/databricks: it parses, and the files, commands and columns that it names exist.

Databricks is not here. Whether the files fit the schema of its bundles is checked by hand when they change.
"""

from __future__ import annotations

import json
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.test_examples import EXAMPLES, ROOT, require_known

import lakebackup
from lakebackup.config import Settings
from lakebackup.errors import UsageProblem

BUNDLE = EXAMPLES / "databricks"
README = (BUNDLE / "README.md").read_text("utf-8")
CONFIGURATION: dict[str, Any] = yaml.safe_load((BUNDLE / "databricks.yml").read_text("utf-8"))
RESOURCE_FILES = sorted(BUNDLE.glob("resources/*.yml"))
DASHBOARD: dict[str, Any] = json.loads((BUNDLE / "src/backups.lvdash.json").read_text("utf-8"))
SCRIPT = BUNDLE / "src/run_lakebackup.py"


def resources() -> dict[str, dict[str, Any]]:
    """The resources of all files by their kind and key."""
    resources: dict[str, dict[str, Any]] = {}
    for file in RESOURCE_FILES:
        for kind, by_key in yaml.safe_load(file.read_text("utf-8"))["resources"].items():
            assert not resources.get(kind, {}).keys() & by_key.keys()
            resources.setdefault(kind, {}).update(by_key)
    return resources


def tasks() -> Iterator[dict[str, Any]]:
    for job in resources()["jobs"].values():
        yield from job["tasks"]


def readme_commands() -> list[list[str]]:
    """The words of each command of the README after `lakebackup`."""
    lines = re.findall(r"`lakebackup ([^`]+)`|^ *lakebackup (.*)$", README, re.MULTILINE)
    return [shlex.split(inline or line, comments=True) for inline, line in lines]


def test_every_variable_exists_and_each_target_has_a_value_for_it() -> None:
    texts = [path.read_text("utf-8") for path in [BUNDLE / "databricks.yml", *RESOURCE_FILES]]
    references = set(re.findall(r"\$\{([^}]*)\}", "".join(texts)))
    variables = {name.removeprefix("var.") for name in references if name.startswith("var.")}
    assert variables == set(CONFIGURATION["variables"])
    assert {name for name in references if not name.startswith("var.")} == {
        "bundle.name", "bundle.target", "workspace.file_path",
    }  # fmt: skip
    without_default = {name for name, v in CONFIGURATION["variables"].items() if "default" not in v}
    for target in CONFIGURATION["targets"].values():
        assert set(target["variables"]) == without_default


def test_every_file_exists_or_is_written_by_a_command_of_the_page() -> None:
    assert CONFIGURATION["include"] == ["resources/*.yml"]
    paths = {task["spark_python_task"]["python_file"] for task in tasks() if "spark_python_task" in task}
    paths |= {dashboard["file_path"] for dashboard in resources()["dashboards"].values()}
    assert all((BUNDLE / "resources" / path).is_file() for path in paths)
    statements = {task["sql_task"]["file"]["path"] for task in tasks() if "sql_task" in task}
    output_files = {words[words.index("--out") + 1] for words in readme_commands() if "--out" in words}
    assert {
        path.replace("${bundle.target}", "dev").removeprefix("../") for path in statements
    } == output_files
    links = re.findall(r"\]\(((?!http)[\w./-]+)\)", README)
    assert {str(path.relative_to(BUNDLE)) for path in RESOURCE_FILES} <= set(links)
    assert all((BUNDLE / link).exists() for link in links)


def test_tasks_name_tasks_and_clusters_of_their_job() -> None:
    for job in resources()["jobs"].values():
        keys = {task["task_key"] for task in job["tasks"]}
        clusters = {cluster["job_cluster_key"] for cluster in job.get("job_clusters", [])}
        for task in job["tasks"]:
            assert {dependency["task_key"] for dependency in task.get("depends_on", [])} <= keys
            assert "job_cluster_key" not in task or task["job_cluster_key"] in clusters
    due, refresh = resources()["jobs"]["backups"]["tasks"]
    assert refresh["depends_on"] == [{"task_key": due["task_key"]}]
    assert "run_if" not in refresh, "a refresh after a failure would make the run a success"


def test_commands_are_known() -> None:
    commands = readme_commands()
    assert ["due", "--run"] in commands
    for words in commands:
        require_known(*words)
    ddl = [words for words in commands if words[:2] == ["catalog", "ddl"]]
    variables = CONFIGURATION["targets"]["dev"]["variables"]
    catalog = CONFIGURATION["variables"]["catalog"]["default"]
    for words in ddl:
        assert words[words.index("--schema") + 1] == f"{catalog}.{variables['schema']}"
        assert words[words.index("--repo") + 1] == variables["repo"]
    assert ["--refresh" in words for words in ddl] == [False, True]
    (due, *_) = tasks()
    require_known(
        *(word.replace("${var.repo}", variables["repo"]) for word in due["spark_python_task"]["parameters"])
    )


def test_the_job_installs_this_version_with_its_settings_and_no_secret() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    (due, *_) = tasks()
    requirement = f"lakebackup[kafka,s3]=={version}"
    assert due["libraries"] == [{"pypi": {"package": requirement}}]
    assert f"pip install '{requirement}'" in README
    parameters = due["spark_python_task"]["parameters"]
    config = parameters[parameters.index("--config") + 1]
    file = BUNDLE / config.removeprefix("${workspace.file_path}/")
    settings = Settings.model_validate(tomllib.loads(file.read_text("utf-8")))
    assert settings.runner == "local"
    assert "password" not in file.read_text("utf-8")
    (cluster,) = resources()["jobs"]["backups"]["job_clusters"]
    scope = CONFIGURATION["variables"]["secret_scope"]["default"]
    assert cluster["new_cluster"]["spark_env_vars"] == {
        "LAKEBACKUP_KAFKA__SASL_PASSWORD": "{{secrets/${var.secret_scope}/kafka-password}}"
    }
    assert f"put-secret {scope} kafka-password" in README


def run_task(monkeypatch: pytest.MonkeyPatch, *parameters: str) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *parameters])
    runpy.run_path(str(SCRIPT))


def test_a_task_prints_what_the_command_prints_and_fails_as_it_does(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_task(monkeypatch, "--version")
    assert capsys.readouterr().out.startswith("lakebackup ")
    with pytest.raises(RuntimeError, match="exit code 2"):
        run_task(monkeypatch, "no-verb")
    assert "no-verb" in capsys.readouterr().out


def test_widgets_show_columns_of_selects_that_run(empty_catalog: Path) -> None:
    connection = lakebackup.connect(str(empty_catalog.parent))
    columns = {
        dataset["name"]: connection.sql("".join(dataset["queryLines"])).arrow().column_names
        for dataset in DASHBOARD["datasets"]
    }
    with pytest.raises(UsageProblem):
        connection.sql("DROP VIEW status")
    (page,) = DASHBOARD["pages"]
    widgets = [item["widget"] for item in page["layout"]]
    for widget in widgets:
        (query,) = (query["query"] for query in widget["queries"])
        fields = [field["name"] for field in query["fields"]]
        assert [field["expression"] for field in query["fields"]] == [f"`{name}`" for name in fields]
        assert set(fields) <= set(columns[query["datasetName"]])
        encodings = widget["spec"]["encodings"]
        encodings = encodings.get("columns") or encodings.values()
        assert [encoding["fieldName"] for encoding in encodings] == fields
    assert {widget["queries"][0]["query"]["datasetName"] for widget in widgets} == set(columns)
    assert len({widget["name"] for widget in widgets}) == len(widgets)
