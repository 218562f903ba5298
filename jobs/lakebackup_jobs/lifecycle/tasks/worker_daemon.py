"""Spark's daemon of Python workers, with what our tasks import in memory before it forks them.

A worker that imports by itself costs half a second of a core and 100 MB, each of them.
"""

from __future__ import annotations

import gc

from lakebackup.sql_engine.arrow import leave_pandas_out

leave_pandas_out()  # before pyarrow.dataset, which would load it: no task needs it

import numba  # noqa: E402, F401 - imported for the workers
import pyarrow.dataset as ds  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

from lakebackup_jobs.kafka.client import native  # noqa: E402
from lakebackup_jobs.lifecycle.tasks import part  # noqa: E402, F401

if __name__ == "__main__":
    native.preload()
    gc.freeze()  # else the collector of each worker copies the pages that all could share
    manager()  # type: ignore[no-untyped-call]
