"""Hooks of MkDocs: add the pages of whole folders to the navigation, and order the search results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# The search boost of a page by the beginning of its path; the default is 1. How-to pages come before
# explanations of the same words. Generated pages, decisions and measurements come last.
SEARCH_BOOSTS = {
    "how-to.md": 8,
    "quickstart.md": 3,
    "topics.md": 2,
    "snapshots.md": 2,
    "change-logs.md": 2,
    "queues.md": 2,
    "questions.md": 2,
    "ask.md": 2,
    "operations.md": 2,
    "policies.md": 2,
    "index.md": 0.5,
    "glossary.md": 0.5,
    "catalog.md": 0.5,
    "data-format.md": 0.5,
    "architecture.md": 0.3,
    "contributing.md": 0.3,
    "benchmarks.md": 0.3,
    "reference/": 0.3,
    "adr/": 0.1,
    "results/": 0.1,
}
# Pages that repeat other pages: the list of all flags, and the columns of tables, which views have too.
NOT_SEARCHED = ("reference/cli/flags.md", "reference/sql/tables.md")


def on_config(config: Any) -> Any:
    """Replace each folder in the navigation by its pages. Returns the changed configuration."""
    config.nav = [_with_pages(entry, Path(config.docs_dir)) for entry in config.nav]
    return config


def _with_pages(entry: Any, docs: Path) -> Any:
    if isinstance(entry, str):
        return entry
    ((title, content),) = entry.items()
    if isinstance(content, str):
        return {title: list(_pages(docs, content))}
    return {title: [_with_pages(child, docs) for child in content]}


def _pages(docs: Path, folder: str) -> Iterator[str]:
    """Yield the pages of a folder: first its index or README, then the others by name."""
    names = sorted(path.name for path in (docs / folder).glob("*.md"))
    yield from (
        folder + name for name in sorted(names, key=lambda name: name not in ("index.md", "README.md"))
    )


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Set the page's search boost, or exclude it from the search. Returns the Markdown unchanged."""
    path = page.file.src_uri
    boost = next((boost for start, boost in SEARCH_BOOSTS.items() if path.startswith(start)), 1)
    page.meta["search"] = {"boost": boost, "exclude": path in NOT_SEARCHED}
    return markdown
