"""Reads the entries of the audit log of a repository, for a rebuild: signed links, and objects without a
signature."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as Spark's own documentation has it)

from lakebackup.recovery import stored_text
from lakebackup.rows.tables import spark_columns
from lakebackup.rules.layout import AUDIT_FOLDER, signatures_folder
from lakebackup.signing import chain
from lakebackup.signing.faults import Untrusted
from lakebackup.signing.keys import TrustedKeys
from lakebackup.storage import Storage
from lakebackup.store import signatures


@dataclass(frozen=True, slots=True)
class AuditEntries:
    """The entries of an audit log, with the columns of the table `audit`. An entry that cannot be read is a
    row of NULL. `problems`: what was left out."""

    rows: DataFrame
    problems: tuple[str, ...] = ()


def read(spark: SparkSession, storage: Storage, keys: TrustedKeys | None) -> AuditEntries:
    """Read all entries; with `keys` only those that one of them signed. Spark reads them in its tasks."""
    if keys is None:
        return AuditEntries(_signed(spark, storage, None).unionByName(_unsigned(spark, storage)))
    newest, problems = _newest_trusted(storage, keys)
    if count := _unsigned_count(storage):
        problems.append(
            f"{AUDIT_FOLDER}/: {count} entries are not signed by a trusted key and are left out. Set the "
            "policies and holds among them again."
        )
    return AuditEntries(_signed(spark, storage, newest), tuple(problems))


def _unsigned_count(storage: Storage) -> int:
    folder = f"{AUDIT_FOLDER}/"
    return sum(entry.path[len(folder)].isdigit() for entry in storage.list(folder))


def _newest_trusted(storage: Storage, keys: TrustedKeys) -> tuple[int, list[str]]:
    """The number of the newest link up to which trusted keys signed all, and what is wrong with the next."""
    newest, problems = 0, []
    links = signatures.links(storage, AUDIT_FOLDER)
    try:
        for signed in chain.check(chain.AuditLink, AUDIT_FOLDER, links, keys):
            newest = signed.link.number
    except Untrusted as fault:
        problems.append(f"{fault.message} Nothing that was signed later is taken.")
    return newest, problems


def _signed(spark: SparkSession, storage: Storage, newest: int | None) -> DataFrame:
    """The entries of links up to the number `newest`; None: of all. Of links with the same name the newest
    counts: their action was repeated."""
    folder = signatures_folder(AUDIT_FOLDER)
    if next(storage.list(folder), None) is None:
        return spark.createDataFrame([], spark_columns("audit"))
    objects = stored_text.numbered_objects(spark, storage, folder)
    payload = F.unbase64(F.get_json_object("value", "$.payload")).cast("string")
    entry = spark_columns("audit").replace(" NOT NULL", "")
    link = F.from_json(payload, f"number BIGINT, name STRING, entries ARRAY<STRUCT<{entry}>>")
    links = objects.select(link.alias("link")).select("link.*")
    if newest is not None:
        links = links.where(F.col("number") <= newest)
    entries = links.select("number", "name", F.posexplode_outer("entries").alias("index", "entry"))
    newest_entry = F.max_by("entry", "number").alias("entry")
    return entries.groupBy("name", "index").agg(newest_entry).select("entry.*")


def _unsigned(spark: SparkSession, storage: Storage) -> DataFrame:
    entry = F.from_json("value", spark_columns("audit").replace(" NOT NULL", "")).alias("entry")
    return stored_text.numbered_objects(spark, storage, f"{AUDIT_FOLDER}/").select(entry).select("entry.*")
