"""`lakebackup` as a program for `python -m lakebackup_jobs` and spark-submit: the same verbs and flags."""

from __future__ import annotations

import sys

from lakebackup_jobs.cli import main

if __name__ == "__main__":
    sys.exit(main())
