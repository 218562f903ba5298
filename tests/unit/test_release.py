"""What a release needs: metadata of the package, the changelog and its fragments, the pages of .github."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from trove_classifiers import classifiers as known_classifiers

ROOT = Path(__file__).parents[2]
FRAGMENTS = ROOT / ".ci/changes"
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
TYPES = [entry["directory"] for entry in PROJECT["tool"]["towncrier"]["type"]]
NAME = re.compile(rf"\+[a-z0-9]+(-[a-z0-9]+)*\.({'|'.join(TYPES)})\.md")


def fragment_faults(folder: Path) -> list[str]:
    """What is wrong with the fragments of a folder, a sentence each."""
    faults = []
    for path in sorted(folder.iterdir()):
        if path.name == "README.md":
            continue
        lines = path.read_text("utf-8").splitlines()
        if not NAME.fullmatch(path.name):
            faults.append(f"{path.name}: the name is not +NAME.TYPE.md with a type of {', '.join(TYPES)}")
        elif len(lines) != 1 or not 10 <= len(lines[0]) <= 118 or not lines[0].endswith("."):
            faults.append(f"{path.name}: not one sentence on one line of at most 118 characters")
    return faults


def test_every_fragment_of_the_changelog_has_a_name_and_a_sentence() -> None:
    assert fragment_faults(FRAGMENTS) == []


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("+a-flag.added.md", "`status` has a flag.\n", None),
        ("a-flag.added.md", "`status` has a flag.\n", "the name"),
        ("+a-flag.feature.md", "`status` has a flag.\n", "the name"),
        ("+A_flag.added.md", "`status` has a flag.\n", "the name"),
        ("+a-flag.added.rst", "`status` has a flag.\n", "the name"),
        ("+a-flag.added.md", "`status` has\na flag.\n", "one line"),
        ("+a-flag.added.md", "`status` has a flag\n", "one sentence"),
        ("+a-flag.added.md", "", "one sentence"),
    ],
)
def test_a_fragment_that_towncrier_would_leave_out_is_a_fault(
    tmp_path: Path, name: str, text: str, fault: str | None
) -> None:
    (tmp_path / "README.md").write_text("About fragments", "utf-8")
    (tmp_path / name).write_text(text, "utf-8")
    faults = fragment_faults(tmp_path)
    assert len(faults) == (fault is not None)
    assert (fault or "") in " ".join(faults)


def test_towncrier_makes_a_section_of_fragments(tmp_path: Path) -> None:
    folder = tmp_path / ".ci/changes"
    folder.mkdir(parents=True)
    (folder / "+a-flag.added.md").write_text("`status` has a flag.\n", "utf-8")
    (folder / "+a-fault.fixed.md").write_text("`prune` ends.\n", "utf-8")
    for name in ("pyproject.toml", "CHANGELOG.md"):
        (tmp_path / name).write_text((ROOT / name).read_text("utf-8"), "utf-8")
    towncrier = [Path(sys.executable).with_name("towncrier"), "build", "--draft", "--version", "9.8.7"]
    process = subprocess.run([*towncrier, "--dir", tmp_path], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    title, *lines = [line for line in process.stdout.splitlines() if line]
    assert re.fullmatch(r"## 9\.8\.7 - \d{4}-\d\d-\d\d", title)
    assert lines == ["### Added", "- `status` has a flag.", "### Fixed", "- `prune` ends."]
    assert "<!-- towncrier release notes start -->" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_changelog_begins_with_the_version_of_the_package() -> None:
    content = (ROOT / "CHANGELOG.md").read_text("utf-8")
    titles = re.findall(r"^## (.*)$", content, re.MULTILINE)
    version = re.escape(PROJECT["project"]["version"])
    assert re.fullmatch(rf"{version} - \d{{4}}-\d\d-\d\d", titles[0])
    assert titles[-1] == "0.1.0"
    assert max(map(len, content.splitlines())) <= 120
    assert set(re.findall(r"^### (.*)$", content, re.MULTILINE)) <= {"Added", "Changed", "Fixed"}


def test_the_metadata_of_the_package() -> None:
    """A licence is an expression: its classifiers are out of use, and must not stand beside one."""
    core = ProjectMetadata(str(ROOT), PluginManager()).core
    assert (core.name, core.version) == ("lakebackup", PROJECT["project"]["version"])
    assert core.license_expression == "Apache-2.0"
    assert core.license_files == ["LICENSE", "jobs/lakebackup_jobs/query/plotly/LICENSE"]
    assert core.readme.startswith("# lakebackup\n")
    assert core.readme_content_type == "text/markdown"
    assert len(core.description) < 120
    assert "kafka" in core.keywords
    assert set(core.classifiers) <= known_classifiers
    assert not [name for name in core.classifiers if name.startswith("License ::")]
    versions = {f"3.{minor}" for minor in range(5, 30) if core.python_constraint.contains(f"3.{minor}.1")}
    prefix = "Programming Language :: Python :: "
    assert versions == {
        name.removeprefix(prefix) for name in core.classifiers if re.fullmatch(rf"{prefix}3\.\d+", name)
    }


def test_every_package_for_development_has_its_line_in_the_page() -> None:
    page = (ROOT / "docs/dependencies.md").read_text("utf-8")
    assert "towncrier" in page
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    assert re.search(r"^towncrier==", lock, re.MULTILINE)


def test_ci_runs_the_script_of_every_other_machine() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands == ["sudo .ci/tools", ".ci/run"]
    settings = {step["uses"].partition("@")[0]: step["with"] for step in job["steps"] if "uses" in step}
    assert settings["actions/setup-python"]["python-version"] == "3.11"
    assert settings["actions/setup-java"] == {"distribution": "temurin", "java-version": "17"}
    assert settings["actions/checkout"]["persist-credentials"] is False
    assert (ROOT / settings["actions/setup-python"]["cache-dependency-path"]).is_file()
    # The cache of JVM libraries: what can be fetched again, no logs and no certificates.
    assert settings["actions/cache"]["path"] == "~/.cache/lakebackup/jars"
    (hashed,) = re.findall(r"hashFiles\('(.*)'\)", settings["actions/cache"]["key"])
    assert (ROOT / hashed).is_file()


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md"])
def test_the_pages_of_the_repository_lead_to_the_documentation(name: str) -> None:
    content = (ROOT / ".github" / name).read_text("utf-8")
    links = re.findall(r"\]\(([^)]+)\)", content)
    assert f"../docs/{name.lower()}" in links
    assert [link for link in links if not (ROOT / ".github" / link).is_file()] == []


def test_the_newest_version_is_supported() -> None:
    content = (ROOT / ".github/SECURITY.md").read_text("utf-8")
    minor = PROJECT["project"]["version"].rpartition(".")[0]
    assert f"| {minor} | yes |" in content
    assert "Report a vulnerability" in content
