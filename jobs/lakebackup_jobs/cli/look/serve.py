"""`lakebackup serve …`: servers for other programs, which run until they are stopped."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

from lakebackup.errors import EnvironmentProblem, NotFound, UsageProblem
from lakebackup.storage.private import require_own
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli.agents.bounds import Bounds
from lakebackup_jobs.cli.agents.server import agent_server, http_app, serve_stdio
from lakebackup_jobs.cli.agents.tools import CatalogTools
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import option, switch
from lakebackup_jobs.cli.flags.values import address, size, span
from lakebackup_jobs.cli.interrupt import stopped_by_signals
from lakebackup_jobs.cli.log.common import place_of
from lakebackup_jobs.cli.output.errors import end_process
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.lifecycle.progress import event_line
from lakebackup_jobs.logs.control.http_api import app_of, serving
from lakebackup_jobs.logs.control.metrics import of_destination, serve, url_of
from lakebackup_jobs.query.thrift_server import thrift_server
from lakebackup_jobs.runtime.masking import secrets_of
from lakebackup_jobs.runtime.run_as import find_account
from lakebackup_jobs.runtime.session import connect_server

HOST = option("--host ADDRESS", "Address to listen on. There is no password.", "127.0.0.1")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@verb(options.REPO)
def thrift(
    call: Call,
    port: int = option("--port PORT", "Port to listen on.", 10000, **options.PORTS),
    host: str = HOST,
    account: str | None = option(
        "--account NAME",
        "Account to run as. It must not be able to write to the catalog or the repositories.",
        show_default="nobody when root runs this, else your own",
    ),
) -> None:
    """Serve the catalog's views over JDBC (Spark Thrift server) for BI tools, until Ctrl-C.

    Anyone who connects can run any SQL with the rights of the account. The server starts only if that
    account can't write.

    Examples:
        lakebackup serve thrift --repo ./backups
        beeline -u jdbc:hive2://127.0.0.1:10000 -e "SELECT * FROM restore_points"
    """
    reader = CatalogReader.require(*call.repository_and_catalog)
    roots = sorted(set(reader.destinations().readable.values()))
    run_as = find_account(account)
    _warn_if_open(call, host)
    server = thrift_server(
        reader.catalog_uri,
        roots,
        run_as,
        host=host,
        port=port,
        memory=call.settings.spark.get("spark.driver.memory"),
        warn=call.report.warning,
    )
    with server as runs:
        _print_ready(call, f"jdbc:hive2://{host}:{port}/default", account=run_as.name)
        _until_stopped(runs)


@verb(options.CLUSTER)
def connect(
    call: Call,
    port: int = option("--port PORT", "Port to listen on.", 15002, **options.PORTS),
    host: str = HOST,
) -> None:
    """Serve Spark Connect with lakebackup's settings, for notebooks and for `--remote`, until Ctrl-C.

    Anyone who connects can run code as you. Keep it on the loopback interface, or behind a proxy that
    authenticates.

    Examples:
        lakebackup serve connect --port 15002
    """
    settings = call.settings

    extra = dict(settings.spark) | ({"spark.master": settings.master} if settings.master else {})
    _warn_if_open(call, host)
    with connect_server(host=host, port=port, extra=extra) as address:
        _print_ready(call, address)
        _until_stopped(lambda: True)


@verb(options.REPO)
def metrics(
    call: Call,
    port: int = option("--port PORT", "Port to listen on.", 9464, **{**options.PORTS, "min": 0}),
    host: str = HOST,
) -> None:
    """Serve the figures of all sources and log tasks to Prometheus, until Ctrl-C.

    Each scrape reads the catalog. Clients can't change anything.

    Examples:
        lakebackup serve metrics --repo ./backups
        curl http://127.0.0.1:9464/metrics
    """
    CatalogReader.require(*call.repository_and_catalog)
    _warn_if_open(call, host)
    with serve(of_destination(*call.repository_and_catalog), host, port) as listening:
        _print_ready(call, f"{url_of(host, listening)}/metrics")
        _until_stopped(lambda: True)


@verb(options.REPO, options.KAFKA_CONFIG)
def http(
    call: Call,
    port: int = option("--port PORT", "Port to listen on.", 8088, **{**options.PORTS, "min": 0}),
    host: str = option("--host ADDRESS", "Address to listen on.", "127.0.0.1"),
    token_file: Path | None = option(
        "--token-file FILE", "File with the bearer token that requests must send."
    ),
) -> None:
    """Serve the verbs of `lakebackup log` and Prometheus metrics over HTTP, until Ctrl-C.

    Without a token it listens on the loopback interface only. It has no TLS: put a proxy in front for other
    machines.

    Examples:
        lakebackup serve http --repo ./backups
        curl http://127.0.0.1:8088/log/tasks
        lakebackup serve http --repo ./backups --host 0.0.0.0 --token-file /run/secrets/lakebackup-token
    """
    token = _token(token_file or call.settings.log.token_file, host, "stop tasks")
    CatalogReader.require(*call.repository_and_catalog)
    environment = place_of(call, run=True)
    with serving(app_of(environment, token), host, port) as (url, runs):
        _print_ready(call, url)
        _until_stopped(runs)


@verb(options.REPO)
def mcp(
    call: Call,
    http: str | None = option(
        "--http HOST:PORT", "Serve over HTTP at this address, instead of standard input and output."
    ),
    token_file: Path | None = option(
        "--token-file FILE", "File with the bearer token that requests must send. For --http."
    ),
    plans: Path | None = option(
        "--plans FOLDER", "Let agents save plans of restores into this folder. A person carries them out."
    ),
    allow_records: bool = switch(
        "--allow-records", "Let agents read the records inside the backups, with records('topic')."
    ),
    max_rows: int = option("--max-rows N", "The most rows of an answer.", 1000, min=1),
    max_bytes: str = option("--max-bytes SIZE", "The most bytes of the rows of an answer.", "1MiB"),
    timeout: str = option("--timeout SPAN", "Stop a query after this time.", "1m"),
) -> None:
    """Let agents (language models) ask the catalog, over the Model Context Protocol. It is read-only.

    A client starts it and talks to it on standard input and output. With --http it serves many clients at
    http://HOST:PORT/mcp; without a token it then listens on the loopback interface only, and it has no TLS.

    The tools are sources, status, coverage, ask (a SELECT) and explain_restore; with --plans also
    plan_restore. None of them restores, deletes or backs up anything.

    Examples:
        lakebackup serve mcp --repo ./backups
        lakebackup serve mcp --repo ./backups --plans ./plans
        lakebackup serve mcp --repo ./backups --http 127.0.0.1:8090
    """
    if http is None and token_file is not None:
        raise UsageProblem("--token-file is for --http.", hint="Give --http HOST:PORT too.")
    host, port = ("", 0) if http is None else address("--http", http)
    token = (
        None if http is None else _token(token_file or call.settings.log.token_file, host, "ask the catalog")
    )
    most = Bounds(max_rows, size("--max-bytes", max_bytes) or 1, (span("--timeout", timeout) or 1) / 1000)
    tools = CatalogTools(
        *call.repository_and_catalog,
        most=most,
        allow_records=allow_records,
        plans=plans,
        give_up=end_process(call.json),
    )
    server = agent_server(tools, secrets_of(call.settings))
    if http is None:
        serve_stdio(server)
        return
    with serving(http_app(server, token), host, port) as (url, runs):
        _print_ready(call, f"{url}/mcp")
        _until_stopped(runs)


def _token(file: Path | str | None, host: str, power: str) -> str | None:
    """The token in a file. Raises UsageProblem when there is no file and other machines can connect.

    `power`: what everybody could do without a token.
    """
    if file is None:
        if host not in _LOOPBACK:
            raise UsageProblem(
                f"Everybody who reaches {host} could {power}.",
                hint="Give --token-file FILE, or keep it on the loopback interface.",
            )
        return None

    require_own(file, "The file of --token-file", secret=True)
    try:
        token = Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise NotFound(
            f"--token-file {file} cannot be read: {error.strerror}.", hint="Name a file that holds the token."
        ) from None
    if not token:
        raise UsageProblem(f"--token-file {file} is empty.", hint="Put a long random word into it.")
    return token


def _print_ready(call: Call, url: str, **fields: str) -> None:
    line = event_line("ready", {"url": url, **fields})
    sys.stdout.write(f"{line}\n" if call.json else f"Ready: {url}  (Ctrl-C stops it)\n")
    sys.stdout.flush()


def _warn_if_open(call: Call, host: str) -> None:
    if host not in _LOOPBACK:
        call.report.warning(f"everybody who reaches {host} can connect: there is no password")


def _until_stopped(runs: Callable[[], bool]) -> None:
    """Wait for SIGINT or SIGTERM. Raises EnvironmentProblem when the server ends by itself."""
    stop = threading.Event()
    with stopped_by_signals(stop):
        while not stop.wait(1):
            if not runs():
                raise EnvironmentProblem("The server ended by itself; its log is in the cache's folder logs.")
