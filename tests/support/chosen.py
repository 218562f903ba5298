"""Marks the cases of parametrized tests that run only with the long tests."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest


def mark_long(values: Collection[Any], always: Collection[Any]) -> list[Any]:
    """For `parametrize`: all of `values`; those that are not in `always` are marked as long."""
    unknown = [value for value in always if value not in values]
    assert not unknown, f"none of them: {unknown}"
    return [v if v in always else _long(*v) if isinstance(v, tuple) else _long(v) for v in values]


def _long(*value: Any) -> Any:
    return pytest.param(*value, marks=pytest.mark.long)
