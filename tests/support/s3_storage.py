"""The S3 storage under test: small parts, few tries."""

from __future__ import annotations

import os
from typing import Any

from lakebackup.storage.options import S3Options

PART = 5 * 1024 * 1024  # the least that S3 takes
LARGE = os.urandom(1 << 16) * 81 + b"its end"  # a part and a bit
TRIES = 3


def options(**given: Any) -> S3Options:
    return S3Options(**{"part_size": PART, "max_attempts": TRIES, **given}).resolved()
