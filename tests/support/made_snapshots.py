"""Snapshots of one tablet, backed up by hand."""

from tests.support.given_snapshots import MadeSnapshots

__all__ = ["MadeSnapshots"]
