"""The settings of a Spark session. PySpark is not imported, since they are needed before it is loaded."""

from __future__ import annotations

import os
import shlex
from contextlib import suppress
from importlib.resources import as_file, files

from lakebackup.errors import UsageProblem
from lakebackup.storage.options import MODE, S3Options
from lakebackup_jobs.runtime import DAEMON
from lakebackup_jobs.runtime.java import trust_store
from lakebackup_jobs.runtime.java.home import java_home
from lakebackup_jobs.runtime.java.jars import cache_folder, class_path, work_folder

#: Statements have named parameters, which the parser of Delta's extension leaves unbound without this.
NAMED_PARAMETERS = {"spark.sql.legacy.parameterSubstitution.constantsOnly": "true"}
# These are also set on a session of a Spark Connect server, which was started with other settings.
RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.execution.arrow.maxBytesPerBatch": "64m",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # A catalog's rows are much larger than its files: two million positions take 4 MB in files, 580 MB in
    # memory. Without this Spark took such a table for small and broadcast it, until the heap was full and the
    # query hung.
    "spark.sql.sources.fileCompressionFactor": "30",
    **NAMED_PARAMETERS,
}
_AWS = "software.amazon.awssdk"
# AWS's variables for servers that do not support checksums. They are no secrets.
_CHECKSUMS = ("AWS_REQUEST_CHECKSUM_CALCULATION", "AWS_RESPONSE_CHECKSUM_VALIDATION")


def spark_settings(master: str = "local[*]") -> dict[str, str]:
    """Return every setting of a session on `master`. Fetches the connector jars unless they are cached."""
    is_local = master.startswith("local")
    java_home()  # raises an error before anything is fetched
    jars = class_path("spark")
    s3 = _s3_options()
    with as_file(files("lakebackup_jobs.runtime.java") / "log4j2.properties") as log4j:
        java_options = shlex.join([f"-Dlog4j2.configurationFile={log4j}", *_trust_options(s3)])
    settings = {
        "spark.master": master,
        **RUNTIME,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(cache_folder() / "warehouse"),
        "spark.driver.extraClassPath": jars,
        "spark.executor.extraClassPath": jars,
        "spark.driver.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.worker.reuse": "true",
        # With it, tasks with and without SQL share workers: Spark keeps separate ones for each environment.
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
        # Workers import nothing from the folder in which they start.
        "spark.executorEnv.PYTHONSAFEPATH": "1",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.executorEnv.NUMBA_CACHE_DIR": str(work_folder() / "numba"),
        # Otherwise a flipped bit in a Parquet page is not detected.
        "spark.hadoop.parquet.page.write-checksum.enabled": "true",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
        # Spark 4 finds the ends of __consumer_offsets only this way.
        "spark.sql.streaming.kafka.useDeprecatedOffsetFetching": "true",
        **_object_storage(s3),
    }
    if is_local:  # the defaults (200 and 50) are for clusters and make each small Delta read slow
        settings |= {
            "spark.driver.extraJavaOptions": f"{java_options} -XX:+UseSerialGC "
            # By default the JVM takes memory by the machine's size before it collects garbage. A large plan
            # still gets spark.driver.memory.
            "-XX:ReservedCodeCacheSize=240m -Xms32m -XX:MaxHeapFreeRatio=40",
            # Only a task that runs out of memory fails. By default Spark would end the JVM, and this is the
            # only one.
            "spark.executor.killOnFatalError.depth": "0",
            # On this machine only: on a cluster, the package arrives with the tasks, too late for the daemon.
            "spark.python.daemon.module": DAEMON,
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
        }
    return settings


def _s3_options() -> S3Options | None:
    """Return the settings of S3; None if they are wrong, which is reported when S3 is used."""
    with suppress(UsageProblem):
        return S3Options.from_environment()
    return None


def _trust_options(options: S3Options | None) -> list[str]:
    """Return the driver's JVM options to trust the certificate authorities that the settings of S3 name."""
    with suppress(UsageProblem):
        if options and (bundle := options.authorities()):
            return trust_store.java_options(bundle)
    return []


def _object_storage(options: S3Options | None) -> dict[str, str]:
    """Return lakebackup's settings of S3 as settings of Hadoop's S3A and of the Python workers.

    Contains no secrets: the JVM finds those by the same variables, files and roles as AWS's SDK for Python.
    """
    settings = {
        "fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        "fs.AbstractFileSystem.s3.impl": "org.apache.hadoop.fs.s3a.S3A",
        # The default stream of Hadoop 3.5 keeps the blocks that it reads ahead in the JVM's memory.
        "fs.s3a.input.stream.type": "classic",
        "fs.s3a.aws.credentials.provider": f"{_AWS}.auth.credentials.DefaultCredentialsProvider",
    }
    workers = {MODE: os.environ[MODE]} if MODE in os.environ else {}
    if options:
        workers |= {name: os.environ[name] for name in _CHECKSUMS if name in os.environ}
        workers |= options.variables()
        settings |= {
            "fs.s3a.endpoint.region": options.region or "",
            "fs.s3a.path.style.access": str(bool(options.path_style)).lower(),
            "fs.s3a.connection.establish.timeout": f"{options.connect_timeout * 1000:.0f}ms",
            **_retry_settings(options),
        }
        if options.endpoint:
            settings["fs.s3a.endpoint"] = options.endpoint
        if options.requester_pays:
            settings["fs.s3a.requester.pays.enabled"] = "true"
        if options.sse:
            settings["fs.s3a.encryption.algorithm"] = {"AES256": "SSE-S3", "aws:kms": "SSE-KMS"}[options.sse]
        if options.kms_key_id:
            settings["fs.s3a.encryption.key"] = options.kms_key_id
    return {f"spark.hadoop.{name}": value for name, value in settings.items()} | {
        f"spark.executorEnv.{name}": value for name, value in workers.items()
    }


def _retry_settings(options: S3Options) -> dict[str, str]:
    """Return the settings for how long S3A retries a request.

    A commit by Spark that fails repeatedly must end before its lease does, since S3A puts it without a
    condition. The waits below sum up to 24 s at most. By default S3A retries twenty times a request that the
    SDK has already retried.
    """
    retries = str(min(options.max_attempts, 6) - 1)
    return {
        "fs.s3a.attempts.maximum": "0",  # the SDK's retries
        "fs.s3a.retry.limit": retries,
        "fs.s3a.retry.interval": "100ms",
        "fs.s3a.retry.throttle.limit": retries,
        "fs.s3a.retry.throttle.interval": "250ms",  # the first wait is twice that, then doubled; ± a half
        "fs.s3a.connection.timeout": f"{min(options.read_timeout, 15) * 1000:.0f}ms",  # S3A's minimum is 15 s
    }
