"""Runs `lakebackup` for `python -m lakebackup_jobs` and spark-submit, with the same verbs and flags."""

from __future__ import annotations

from lakebackup_jobs.cli import command

if __name__ == "__main__":
    command()
