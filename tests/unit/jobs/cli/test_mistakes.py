"""What the command line says to common mistakes, as tests/unit/jobs/cli/mistakes.yml records it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import mistakes
from tests.support.mistakes import Mistake

RECORDED = mistakes.load()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the repository."""
    folder = tmp_path_factory.mktemp("mistakes")
    mistakes.unpack_repository(folder)
    return folder


@pytest.mark.parametrize("area", RECORDED)
def test_each_mistake_ends_with_its_recorded_message(area: str, folder: Path) -> None:
    for mistake in RECORDED[area]:
        for file in filter(Path.is_file, folder.iterdir()):
            file.unlink()
        assert mistakes.run(mistake, folder) == (mistake.exit, mistake.says), (
            f"{mistake.command} says something else: python -m tests.support.mistakes"
        )


def test_no_recorded_message_is_a_defect_or_a_traceback() -> None:
    recorded = [mistake for area in RECORDED.values() for mistake in area]
    assert len(recorded) >= 60
    assert [mistake.command for mistake in recorded if not _is_an_answer(mistake)] == []


def _is_an_answer(mistake: Mistake) -> bool:
    """Whether a message is a sentence that a hint follows, and the exit code is documented and no defect."""
    lines = mistake.says.rstrip().splitlines()
    is_json = mistake.says.startswith("{")
    return (
        mistake.exit in {2, 3, 5, 6}
        and "Traceback" not in mistake.says
        and (is_json or (mistake.says.startswith("error: ") and len(lines) > 1))
    )
