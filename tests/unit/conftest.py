"""What unit tests share. A property is tried with a quarter of its examples unless the long tests run too."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

from lakebackup.storage import Storage


def pytest_configure(config: pytest.Config) -> None:
    """Runs before the tests are imported, since tests multiply or divide this default number of examples."""
    if "not long" in config.option.markexpr:
        profile = settings.get_profile(settings.get_current_profile_name())
        settings.register_profile("quick", profile, max_examples=profile.max_examples // 4)
        settings.load_profile("quick")


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    """The test's own folder."""
    from lakebackup.storage import open_storage

    return open_storage(str(tmp_path))
