"""`lakebackup serve …`: servers that other programs ask, until they are stopped."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from lakebackup_jobs.cli import options
from lakebackup_jobs.cli.invocation import destination, settings

if TYPE_CHECKING:
    from collections.abc import Callable

app = typer.Typer(help="Serve the catalog to other programs.", no_args_is_help=True)

Host = Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; there is no password.")]
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@app.command(
    "thrift",
    epilog=options.examples(
        "lakebackup serve thrift --from ./backups",
        'beeline -u jdbc:hive2://127.0.0.1:10000 -e "SELECT * FROM restore_points"',
    ),
)
def thrift(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 10000,
    host: Host = "127.0.0.1",
    account: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Account to run as; it must not be able to write to the catalog and the destinations.",
            show_default="nobody when root runs this, else your own",
        ),
    ] = None,
    from_: options.BackupsAt = None,
    catalog: options.Catalog = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Serve the catalog's views over JDBC (Spark Thrift server) for BI tools, until Ctrl-C.

    Whoever connects can run any SQL, with the rights of the account; that it cannot write is tried out first.
    """
    found = settings(config, destination=from_, catalog=catalog)
    where = destination(found, "--from")
    from lakebackup.store import CatalogReader
    from lakebackup_jobs.account import find_account
    from lakebackup_jobs.thrift_server import thrift_server

    reader = CatalogReader.require(where, found.catalog)
    roots = sorted(set(reader.destinations().values()))
    who = find_account(account)
    _tell_if_open(host, json)
    with thrift_server(reader.catalog_uri, roots, who, host=host, port=port) as process:
        _ready(json, f"jdbc:hive2://{host}:{port}/default", account=who.name)
        _until_stopped(lambda: process.poll() is None)


@app.command("connect", epilog=options.examples("lakebackup serve connect --port 15002"))
def connect(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 15002,
    host: Host = "127.0.0.1",
    master: options.Master = None,
    spark_conf: options.SparkConf = None,
    config: options.Config = None,
    json: options.Json = False,
    _debug: options.Debug = False,
) -> None:
    """Serve Spark Connect with lakebackup's settings, for notebooks and for `--remote`, until Ctrl-C.

    Whoever connects can run code as you: keep it on the loopback interface, or behind something that asks.
    """
    found = settings(config, spark_conf=spark_conf or (), master=master)
    from lakebackup_jobs.session import connect_server

    extra = dict(found.spark) | ({"spark.master": found.master} if found.master else {})
    _tell_if_open(host, json)
    with connect_server(host=host, port=port, extra=extra) as address:
        _ready(json, address)
        _until_stopped(lambda: True)


def _ready(as_json: bool, url: str, **more: str) -> None:
    import json
    import sys

    said = json.dumps({"event": "ready", "url": url, **more})
    sys.stdout.write(f"{said}\n" if as_json else f"Ready: {url}  (Ctrl-C stops it)\n")
    sys.stdout.flush()


def _tell_if_open(host: str, as_json: bool) -> None:
    from lakebackup_jobs.progress import reporter

    if host not in _LOOPBACK:
        with reporter(as_json=as_json) as report:
            report.warning(f"everybody who reaches {host} can connect: there is no password")


def _until_stopped(runs: Callable[[], bool]) -> None:
    """Wait for SIGINT or SIGTERM. Raises EnvironmentProblem when the server ends by itself."""
    from lakebackup.errors import EnvironmentProblem

    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        while not stop.wait(1):
            if not runs():
                raise EnvironmentProblem("The server ended by itself; its log is in the cache's folder logs.")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
