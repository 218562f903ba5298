"""What makes Spark's Python workers cheaper between our tasks.

After each task PySpark collects garbage over everything that numba and pyarrow imported, and at the start
of each it makes Python read the folders of zip archives on its path anew: together a fifth of a backup's
processor time.
"""

from __future__ import annotations

import gc
import sys
import zipimport

_settled = False


def settle() -> None:
    """Call at the end of a task, in its worker: what is loaded by now is needed until that ends."""
    global _settled
    if not _settled:
        gc.collect()
        gc.freeze()
        _settled = True
    for path, finder in list(sys.path_importer_cache.items()):
        if isinstance(finder, zipimport.zipimporter):
            # Made again when something is imported from there, which is rare by now.
            del sys.path_importer_cache[path]
