"""Spark's daemon of Python workers, with what our tasks import in memory before it forks them.

A worker that imports by itself costs half a second of a core and 100 MB, each of them.
"""

from __future__ import annotations

import gc

import numba  # noqa: F401 - imported for the workers
import pandas as pd  # noqa: F401
import pyarrow.dataset as ds  # noqa: F401
from pyspark.daemon import manager

if __name__ == "__main__":
    gc.freeze()  # else the collector of each worker copies the pages that all could share
    manager()  # type: ignore[no-untyped-call]
