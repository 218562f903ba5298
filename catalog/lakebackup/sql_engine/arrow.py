"""pyarrow without pandas, which it would load to make its first array."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, cast


def leave_pandas_out() -> None:
    """Let pyarrow look for pandas where there is none: loading it takes longer than most questions.

    pyarrow looks once, when it makes an array. What needs pandas, such as `to_pandas`, loads it all the same.
    """
    import pyarrow as pa

    modules = cast("dict[str, Any]", sys.modules)
    if "pandas" in modules:
        return
    modules["pandas"] = None
    try:
        for _ in range(2):  # its Python part looks first, its C++ part when that has looked
            with suppress(ImportError, AttributeError):
                pa.array([1])
    finally:
        del modules["pandas"]
