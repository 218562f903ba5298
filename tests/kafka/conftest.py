"""What tests against a broker share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.social import Social

from lakebackup_jobs.demo.broker import Broker


@pytest.fixture
def social(broker: Broker, empty_catalog: Path, tmp_path: Path, topic: Callable[..., str]) -> Social:
    """An engine's queues, and a destination for their backups."""
    return Social(broker.bootstrap, tmp_path, empty_catalog, topic("delta", 2), topic("journal"))
