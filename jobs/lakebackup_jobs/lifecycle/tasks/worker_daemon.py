"""Spark's daemon of Python workers, with what our tasks import in memory before it forks them.

A worker that imports by itself costs half a second of a core and 100 MB, each of them.
"""

from __future__ import annotations

import gc

import numba  # noqa: F401 - imported for the workers
import pandas as pd  # type: ignore[import-untyped]  # noqa: F401
import pyarrow.dataset as ds  # noqa: F401
from pyspark.daemon import manager

from lakebackup_jobs.kafka.client import native
from lakebackup_jobs.lifecycle.tasks import part  # noqa: F401

if __name__ == "__main__":
    native.preload()
    gc.freeze()  # else the collector of each worker copies the pages that all could share
    manager()  # type: ignore[no-untyped-call]
