"""`python -m lakebackup_jobs.cli` is `lakebackup`."""

from __future__ import annotations

import sys

from lakebackup_jobs.cli import main

sys.exit(main())
