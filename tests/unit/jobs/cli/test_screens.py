"""The pictures in the docs show what the commands print today."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.screens import FOLDER, NAMES, WIDTHS, backups, screen, text_of

DOCS = FOLDER.parent


@pytest.fixture(scope="module")
def _folder() -> Iterator[None]:
    with backups():
        yield


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("_folder")
def test_a_picture_shows_what_is_printed(name: str, width: int) -> None:
    """If the text differs, run `python -m tests.support.screens` and look at what changed."""
    drawn = text_of((FOLDER / f"{name}-{width}.svg").read_text("utf-8"))
    assert len(drawn) >= 4
    assert drawn == text_of(screen(name, width))


def test_every_picture_is_shown_once() -> None:
    file_names = sorted(path.name for path in FOLDER.iterdir())
    assert file_names == sorted(f"{name}-{width}.svg" for name in NAMES for width in WIDTHS)
    texts = [Path(path).read_text("utf-8") for path in DOCS.glob("*.md")]
    assert (
        sorted(name for text in texts for name in re.findall(r"\]\(screens/([\w-]+\.svg)\)", text))
        == file_names
    )
