"""Writes the SQL statements' texts on DuckDB before hatchling builds the wheel that has them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class TranslateSql(BuildHookInterface):
    """Runs for a wheel, and for an editable install of a clone."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002 (hatchling's own)
        """Write them into the source tree."""
        sys.path[:0] = [str(Path(self.root, folder)) for folder in ("catalog", "sql")]
        from lakebackup.sql_engine import translations

        translations.write()
