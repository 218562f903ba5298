"""S3 storage for tests: small parts, few attempts."""

from __future__ import annotations

import os
from typing import Any

from lakebackup.storage.options import S3Options

PART = 5 * 1024 * 1024  # the smallest part that S3 accepts
LARGE = os.urandom(1 << 16) * 81 + b"its end"  # one part and a little more
TRIES = 3


def options(**overrides: Any) -> S3Options:
    return S3Options(**{"part_size": PART, "max_attempts": TRIES, **overrides}).resolved()
