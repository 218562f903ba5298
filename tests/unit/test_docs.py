"""The pages written by hand: the length of their lines, the one index, and the SELECTs for auditors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.support.asked_catalog import made_catalog

import lakebackup

DOCS = Path(__file__).parents[2] / "docs"
# Pages that the index names as a group, by their folder.
GROUPS = ("adr", "reference", "results")
AUDITORS = re.findall(r"```sql\n(.*?)```", (DOCS / "auditors.md").read_text("utf-8"), re.DOTALL)


def pages(*except_folders: str) -> list[Path]:
    """The pages, without those in some folders."""
    return [
        page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] not in except_folders
    ]


@pytest.mark.parametrize(
    "page",
    pages("reference", "report", "comparison.md"),
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_no_line_of_prose_is_longer_than_120_characters(page: Path) -> None:
    prose = re.sub(r"^ *```.*?^ *```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert [
        line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "    "))
    ] == []


def test_the_index_links_to_every_page() -> None:
    links = set(re.findall(r"\]\(([\w./-]+\.md)", (DOCS / "index.md").read_text("utf-8")))
    links |= {str(page.relative_to(DOCS)) for page in pages() if page.name == "index.md"}
    assert [page for page in pages(*GROUPS) if str(page.relative_to(DOCS)) not in links] == []


def test_every_select_for_auditors_runs(tmp_path: Path) -> None:
    connection = lakebackup.connect(str(made_catalog(tmp_path).folder))
    assert len(AUDITORS) > 10
    for select in AUDITORS:
        connection.sql(select).rows()
