"""Planned files, recorded as Arrow in splits of about equal weight, by this process or by tasks."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

from lakebackup.storage import open_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

#: The columns that ArrowSplitWriter returns.
WRITTEN = "path STRING"


@dataclass(frozen=True, slots=True)
class ArrowSplitWriter:
    """Writes rows, in order, into splits of about the weight `size`. Returns their paths, which begin with
    `name`.

    A row weighs `each` plus its column `weight`. Rows of one object (destination and the column `path`)
    follow one another, and go into one split.
    """

    uri: str
    name: str
    size: int
    weight: str | None = None
    each: int = 0
    path: str = "path"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        storage = open_storage(self.uri)
        for _, split in groupby(self._numbered(batches), key=itemgetter(0)):
            slices = [rows for _, rows in split]
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, slices[0].schema) as stream:
                for batch in slices:
                    stream.write_batch(batch)
            # Named by its first object, so that a retried task writes the same path.
            first = slices[0].column("destination")[0].as_py(), slices[0].column(self.path)[0].as_py()
            path = f"{self.name}{hashlib.sha256(repr(first).encode()).hexdigest()[:24]}.arrow"
            storage.put(path, sink.getvalue().to_pybytes())
            yield pa.RecordBatch.from_pydict({"path": [path]})

    def _numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Slices of the rows, each with the number of its split."""
        import numpy as np
        import pyarrow.compute as pc

        total = split = 0
        previous_object = None
        for batch in filter(len, batches):
            objects = pc.binary_join_element_wise(batch.column("destination"), batch.column(self.path), "\0")
            starts = np.ones(len(batch), bool)
            starts[0] = objects[0].as_py() != previous_object
            starts[1:] = pc.not_equal(objects[1:], objects[:-1])
            row_weights = np.full(len(batch), self.each)
            if self.weight:
                row_weights += batch.column(self.weight).fill_null(0).to_numpy()
            cumulative = total + np.cumsum(row_weights)
            # For each row, the row at which its object starts; -1: in the previous batch.
            starts_of_objects = np.maximum.accumulate(np.where(starts, np.arange(len(batch)), -1))
            splits = np.where(
                starts_of_objects < 0, split, ((cumulative - row_weights) // self.size)[starts_of_objects]
            )
            total, split, previous_object = int(cumulative[-1]), int(splits[-1]), objects[-1].as_py()
            for start, stop in pairwise([*np.flatnonzero(np.diff(splits, prepend=-1)), len(batch)]):
                yield int(splits[start]), batch.slice(start, stop - start)
