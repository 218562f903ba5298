"""Reads many objects of a repository as text in Spark's tasks, for a rebuild.

Spark's own reader does that, except where the names and the contents of the objects are encrypted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own documentation has it)

from lakebackup.sql_engine.worker import PerNumber
from lakebackup.storage import EncryptedUri, Storage, open_storage

_COLUMNS = "value STRING, path STRING"
_SCHEMA = pa.schema({"value": pa.string(), "path": pa.string()})
_LINES = 10_000
#: The names of objects with a link or an entry begin with a digit, and those of others do not.
_NUMBERED = "[0-9]*.json"


def lines(spark: SparkSession, storage: Storage, folders: Sequence[str]) -> DataFrame:
    """Return the lines of all objects in some folders, which contain objects: value and path."""
    if isinstance(storage.uri, EncryptedUri):
        return _Texts(storage.uri, folders, whole=False).over(spark, range(len(folders)), _COLUMNS)
    texts = spark.read.text([f"{storage.uri}/{folder}" for folder in folders])
    return texts.select("value", F.col("_metadata.file_path").alias("path"))


def numbered_objects(spark: SparkSession, storage: Storage, folder: str) -> DataFrame:
    """Return the whole texts of the objects directly in a folder whose names begin with a digit: value."""
    if isinstance(storage.uri, EncryptedUri):
        return _Texts(storage.uri, [folder], whole=True).over(spark, range(1), _COLUMNS).select("value")
    texts = spark.read.text(f"{storage.uri}/{folder}", wholetext=True, pathGlobFilter=_NUMBERED)
    return texts.select("value")


@dataclass(frozen=True, slots=True)
class _Texts(PerNumber):
    """Reads the lines of `folders[number]`, or with `whole` its numbered objects."""

    uri: EncryptedUri
    folders: Sequence[str]
    whole: bool

    def rows(self, number: int) -> Iterator[pa.RecordBatch]:
        storage, folder = open_storage(self.uri), self.folders[number]
        for name, stat in storage.children(folder):
            if stat is None or (self.whole and not name[0].isdigit()):
                continue
            text = storage.get(stat.path).decode(errors="replace")
            values = [text] if self.whole else text.splitlines()
            for start in range(0, len(values), _LINES):
                batch = values[start : start + _LINES]
                yield pa.RecordBatch.from_pydict(
                    {"value": batch, "path": [f"{self.uri}/{stat.path}"] * len(batch)}, _SCHEMA
                )
