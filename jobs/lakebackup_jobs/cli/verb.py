"""What all verbs of the command line share: common flags, the settings in force, a reporter, a Spark session.

    @verb(options.REPO, options.SPARK_JOB)
    def compact(call: Call, all_keyed: bool = switch("--all-keyed", "Help.")) -> None:

The function has the verb's own flags as parameters. `call` has everything else. `call.request` fills a field
of a request from the parameter with the same name.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from inspect import Parameter, Signature, getdoc, signature
from itertools import chain
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, cast

import pyarrow as pa
import typer
from pyspark.sql import SparkSession

from lakebackup.config import (
    NotifyOptions,
    Properties,
    Settings,
    is_secret,
    load,
    parse_properties,
    read_properties,
)
from lakebackup.errors import LakebackupError
from lakebackup.rules.kafka_properties import check_servers
from lakebackup.rules.times import LocalTime
from lakebackup.storage import with_key
from lakebackup.storage.private import require_own
from lakebackup.storage.uris import require_folder
from lakebackup.store.reader import CatalogReader
from lakebackup_jobs.cli import audit
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.values import in_policy_zone, instant, naming, one_of, required
from lakebackup_jobs.cli.output.explain import explain
from lakebackup_jobs.cli.output.help import PlainCommand
from lakebackup_jobs.cli.output.pager import paged
from lakebackup_jobs.cli.output.results.summary import print_summary
from lakebackup_jobs.cli.output.rows import Brief, Mode, json_line, write
from lakebackup_jobs.cli.output.short_ids import ShortIds
from lakebackup_jobs.connection import Connection, use
from lakebackup_jobs.lifecycle.progress import (
    JSON_VERSION,
    Reporter,
    event_line,
    print_result,
    reader_may_leave,
    reporter,
)
from lakebackup_jobs.runtime import background, settings
from lakebackup_jobs.runtime.identities import configured_recipients
from lakebackup_jobs.runtime.java import jvm
from lakebackup_jobs.runtime.masking import secrets_of, without_secrets
from lakebackup_jobs.runtime.notify import Event, send
from lakebackup_jobs.runtime.session import spark_session
from lakebackup_jobs.runtime.terminal_table import Screen, screen_of
from lakebackup_jobs.runtime.terminal_text import visible, visible_lines

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Request = TypeVar("Request", bound="DataclassInstance")
# The longest error message in a notification, because variables of a command's environment have a limit.
_MAX_ERROR_CHARS = 4_000
_ORDER = {flag.name: position for position, flag in enumerate(options.ALL)}


class Call:
    """One call of a verb.

    `flags`: the values of the shared flags, by name. `own`: the values of the verb's own flags, by parameter.
    `flags_in_use`: those of its own flags that the user set, as they are spelled, and the names of such
    arguments. `session`: the caller's Spark session, if any. `command`: the verb with its group, such as
    `backup topics`.
    """

    def __init__(
        self,
        shared_flags: Sequence[options.Flag],
        flags: Mapping[str, Any],
        own: Mapping[str, Any],
        flags_in_use: Sequence[str],
        session: SparkSession | None,
        stack: ExitStack,
        command: str = "",
    ) -> None:
        self.flags, self.own, self.flags_in_use, self.session = flags, own, flags_in_use, session
        self.command = command
        self.json: bool = flags["json"]
        self.wide: bool = flags["wide"]
        self.explain: bool = flags.get("explain", False)
        self.dry_run: bool = self.explain or flags.get("dry_run", False)
        self._shared_flags, self._stack, self._overrides = shared_flags, stack, dict[str, Any]()
        #: Whether a message to `[notify]` reports the end of the verb, and the result so far.
        self.notifies, self.outcome = False, dict[str, Any]()
        #: The last request that `request` returned.
        self.job_request: object = None

    def override(self, **flags: Any) -> Settings:
        """Override settings by the verb's own `flags`, and return the settings in force.

        A flag that is None overrides nothing. Must be called before the settings are used.
        """
        self._overrides |= flags
        return self.settings

    @cached_property
    def settings(self) -> Settings:
        """The settings in force. Raises UsageProblem and NotFound."""
        flags = self.flags
        kafka: dict[str, str] = {}
        if file := flags.get("kafka_config"):
            kafka = read_properties(file)
            require_own(file, "The file of --kafka-config", secret=any(map(is_secret, kafka)))
        kafka |= parse_properties(flags.get("kafka_property") or ())
        if flags.get("bootstrap_server"):
            kafka["bootstrap.servers"] = check_servers(flags["bootstrap_server"], "--bootstrap-server")
        spark = parse_properties(flags.get("spark_conf") or (), "--spark-conf")
        flag_values = {flag.setting: flags[flag.name] for flag in self._shared_flags if flag.setting}
        flag_values |= {**self._overrides, "kafka": kafka or None, "spark": spark or None}
        settings = load(flag_values, flags["settings_file"])

        use(settings)
        return settings

    @property
    def repository(self) -> str:
        """The URI of the repository. Raises UsageProblem when none is given, or when it names a file."""
        repository = required(
            self.settings.repo,
            "--repo",
            "where is the repository of the backups?",
            hint="Give --repo URI, set LAKEBACKUP_REPO, or repo in lakebackup.toml.",
        )
        require_folder("--repo", repository)
        if self.settings.catalog:
            require_folder("--catalog", self.settings.catalog)
        return repository

    @property
    def repository_and_catalog(self) -> tuple[str, str | None]:
        """The URIs of the repository and the catalog; None when the catalog is in the repository."""
        return self.repository, self.settings.catalog

    @property
    def kafka(self) -> Properties:
        """Kafka's properties. Raises UsageProblem when the verb has a flag for servers and none are given."""
        properties = self.settings.kafka
        if "bootstrap_server" in self.flags:
            required(
                properties.get("bootstrap.servers"),
                "--bootstrap-server",
                "which Kafka cluster?",
                hint="Give --bootstrap-server HOST:PORT, set LAKEBACKUP_KAFKA__BOOTSTRAP_SERVERS, "
                "or write it into [kafka] of lakebackup.toml.",
            )
        return properties

    def request(self, request_type: type[Request], /, **field_values: Any) -> Request:
        """Make a request. Its fields get their values by name.

        `field_values` come first, then the verb's own flags, then shared flags. A field keeps its default
        when its flag was not given.
        """
        own = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.own.items()
            if value is not None
        }
        values = {**self._shared_values(), **own}
        values = {field.name: values[field.name] for field in fields(request_type) if field.name in values}
        request = request_type(**{**values, **field_values})
        self.job_request = request
        return request

    def _shared_values(self) -> dict[str, Any]:
        """The values of shared flags and settings, under the names of the requests' fields."""
        settings, flags = self.settings, self.flags
        values: dict[str, Any] = {
            "destination": with_key(self.repository),
            "catalog": settings.catalog,
            "dry_run": self.dry_run,
            "keys_file": settings.log.keys_file,
            "schema_topics": settings.schema_topics,
            "recipients": configured_recipients(settings.encryption),
        }
        if "kafka_config" in flags:
            values["kafka"] = self.kafka
        if "target_size" in flags:
            values["target_bytes"] = int(settings.target_size)
        if "local_below" in flags:
            values["local_below"] = int(settings.local_below)
        if "bandwidth" in flags:
            values["bandwidth"] = settings.bandwidth and int(settings.bandwidth)
        if "lease_ttl" in flags:
            values["lease_ttl_s"] = settings.lease_ttl
        values |= {name: getattr(settings, name) for name in _FIELDS_OF_FLAGS if name in flags}
        if "engine" in flags:
            values["engine"] = flags["engine"] or "auto"
        if "note" in flags:
            values["note"] = flags["note"]
        return values

    def shared_arguments(self, *excluded: str) -> list[str]:
        """Return the shared flags as arguments for another command, without the flags with these names."""
        flags = [flag for flag in self._shared_flags if flag.name not in excluded]
        return [part for flag in flags for part in flag.arguments(self.flags[flag.name])]

    @cached_property
    def report(self) -> Reporter:
        """The verb's reporter, which is closed when the verb ends."""
        call_reporter = reporter(as_json=self.json, wide=self.wide, printer=self._print_result)
        return self._stack.enter_context(call_reporter)

    def _print_result(self, values: Mapping[str, Any], stream: TextIO, screen: Screen | None) -> None:
        print_summary(values, stream, screen, command=self.command, wide=self.wide)

    def spark(self) -> SparkSession | None:
        """Return the caller's session, or a new one if there are Spark settings.

        None if there is neither; then the job starts a session itself.
        """
        settings = self.settings
        extra = dict(settings.spark) | ({"spark.master": settings.master} if settings.master else {})
        if self.session is not None or not extra:
            return self.session
        self.report.wait("starting Spark")

        return spark_session(remote=settings.remote, extra=extra)

    def start_jvm(self, *, sql: bool = False) -> None:
        """Start the JVM in the background, while the job's modules are imported.

        `sql`: prepare it for SQL too. The job reports an error when it starts the JVM itself.
        """
        call_settings = self.settings
        if (
            self.session is None
            and not self.dry_run
            and not (call_settings.spark or call_settings.master or call_settings.remote)
            and not jvm.SUBMITTED
        ):
            background.later(lambda: jvm.start(settings.spark_settings(), sql=sql, workers=True))

    def spark_if_needed(self) -> SparkSession | Callable[[], SparkSession] | None:
        """Like `spark`, for a job that may not need a session: returns a function that starts one.

        When a master is named, the session starts at once, because a cluster that exists is used.
        """
        settings = self.settings
        needs_cluster = settings.master and settings.runner != "local" and not self.dry_run
        if self.session is not None or needs_cluster or not (settings.spark or settings.master):
            return self.spark()
        return cast("Callable[[], SparkSession]", self.spark)

    def planning_session(self) -> SparkSession | None:
        """Return the session for a run that only plans: the caller's, or a new one if a flag requests Spark.

        None if there is neither. Settings alone start no session.
        """
        is_requested = self.flags["engine"] == "spark" or self.flags["master"]
        return self.spark() if self.session is not None or is_requested else None

    def run(
        self, job: Callable[..., dict[str, Any]], request: object, *, spark: bool = True, **arguments: Any
    ) -> dict[str, Any]:
        """Run a job, report its result and return it. With --explain, print the SQL that decides instead.

        `spark` tells whether the job takes a session. `arguments` are passed to the job.
        """
        result = self.result_of(job, request, spark=spark, **arguments)
        if not self.explain:
            self.report.result(result)
        return result

    def result_of(
        self, job: Callable[..., dict[str, Any]], request: object, *, spark: bool = True, **arguments: Any
    ) -> dict[str, Any]:
        """Run a job as `run` does, but do not report its result. Returns an empty result with --explain."""
        spark_argument: dict[str, Any]
        if "engine" in self.flags and (self.dry_run or not spark):
            spark_argument = {"spark": self.planning_session()}
        elif spark and not self.explain:
            spark_argument = {"spark": self.spark_if_needed() if "runner" in self.flags else self.spark()}
        else:
            spark_argument = {}
        if self.explain:
            self.print_explanation(lambda: job(request, reporter=self.report, **spark_argument, **arguments))
            return {}
        with self.results_of_failures():
            self.outcome = job(request, reporter=self.report, **spark_argument, **arguments)
        return self.outcome

    @contextmanager
    def results_of_failures(self) -> Iterator[None]:
        """Report the result of a run that ends with an error, if the error carries one."""
        try:
            yield
        except LakebackupError as error:
            if error.result is not None:
                self.outcome = dict(error.result)
                self.report.result(error.result)
            raise

    @cached_property
    def as_of(self) -> int | None:
        """The value of --as-of in us since 1970 UTC; None means now."""
        if self.flags.get("as_of") is None:
            return None
        with naming("--as-of"):
            moment = instant(self.flags["as_of"])
        return 1000 * (in_policy_zone(self, "--as-of", moment) if isinstance(moment, LocalTime) else moment)

    @property
    def screen(self) -> Screen | None:
        """The terminal on standard output, or None when it is not a terminal."""
        return screen_of(sys.stdout, wide=self.wide)

    def connection(self, **arguments: Any) -> Connection:
        """A connection to the backups, with the catalog as of --as-of. `arguments`: see `Connection`."""
        self.repository  # noqa: B018 - says which flag is missing
        return Connection(self.settings, as_of=self.as_of, warn=self.warn, **arguments)

    def reader(self) -> CatalogReader:
        """A reader of the catalog as of --as-of. Warns when the catalog is behind.

        DuckDB reads it, so no JVM starts. Raises NotFound when there is no catalog.
        """
        return self.connection().catalog()

    def notify(self, verb: str, started: float, error: Exception | None) -> None:
        """Send the verb's end, or its failure so far, to the channels of `[notify]`. Raises nothing."""
        try:
            settings = self.settings
        except LakebackupError:  # the verb failed with the same error
            return

        if settings.notify == NotifyOptions():
            return
        text, code = str(error), 0 if error is None else 1
        if isinstance(error, LakebackupError):
            text, code = error.message, error.exit_code
        secrets = secrets_of(settings)
        numbers = {
            name: value
            for name, value in self.outcome.items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        }
        event = Event(
            event="failure" if error else "success",
            verb=verb,
            source=self.outcome.get("source") or settings.source,
            destination=without_secrets(settings.repo or "", secrets) or None,
            outcome=type(error).__name__ if error else "ok",
            exit_code=code,
            error=without_secrets(text, secrets)[:_MAX_ERROR_CHARS] if error else None,
            started=started,
            finished=time.time(),
            counts=numbers,
        )
        for channel, problem in send(settings.notify, event).items():
            if problem:
                self.warn(f"[notify] {channel}: {without_secrets(problem, secrets)}")

    def warn(self, text: str) -> None:
        """Print a warning on standard error, as JSON with --json."""
        self._print_message("warning", text, f"warning: {text}")

    def note(self, text: str, **fields: Any) -> None:
        """Print a remark on standard error, as JSON with --json, which also has the `fields`."""
        self._print_message("note", text, text, **fields)

    def _print_message(self, event: str, text: str, line: str, **fields: Any) -> None:
        self.report.clear()
        if self.json:
            line = event_line(event, {"message": text, **fields})
        print(line if self.json else visible_lines(line), file=sys.stderr)

    def print_explanation(self, plan: Callable[[], Any]) -> None:
        """Run `plan`, which changes nothing, and print its queries of the catalog."""
        explain(plan, self.report.clear, as_json=self.json)

    def short_ids(self, reader: CatalogReader) -> ShortIds | None:
        """Return the short ids of backups for a terminal; None when ids are printed in full."""
        if self.screen is None or self.wide or self.json or self.flags.get("csv"):
            return None

        return ShortIds(row["backup_id"] for row in reader.rows("backup_ids"))

    def show(self, values: Mapping[str, Any], sentences: Sequence[str] | None = None) -> None:
        """Write values as text, or as one line of JSON with --json, without the events of a run.

        Text has the `sentences` in place of the values if they are given, and both with --wide.
        """
        self.report.clear()
        if self.json:
            sys.stdout.write(json_line({"v": JSON_VERSION, **values}))
            return
        screen = self.screen
        with paged(), reader_may_leave():
            sys.stdout.writelines(f"{visible(sentence)}\n" for sentence in sentences or ())
            if sentences is None or self.wide:
                print_result(values, sys.stdout, screen)
            sys.stdout.flush()

    def write_lines(self, lines: Iterable[str]) -> None:
        """Write lines of visible text, page by page on a terminal."""
        self.report.clear()
        with paged(), reader_may_leave():
            sys.stdout.writelines(lines)
            sys.stdout.flush()

    @property
    def row_mode(self) -> Mode:
        """The mode in which rows are written. Raises UsageProblem when flags request several."""
        forms = {"json": self.json, "csv": self.flags["csv"], "agent": self.flags.get("agent", False)}
        return cast("Mode", one_of(forms, "wide" if self.wide else "table"))

    def write(
        self,
        rows: pa.RecordBatchReader,
        columns: Sequence[str] | None = None,
        brief: Brief | None = None,
    ) -> None:
        """Write rows as a table of `columns`; on a terminal, `brief` shortens it.

        JSON lines and CSV have all columns.
        """
        self.report.clear()
        mode = self.row_mode
        write(rows, mode=mode, pages=mode in ("table", "wide"), columns=columns, brief=brief)


#: Verbs, or groups of them, whose end is sent to `[notify]`: those that a schedule runs.
JOBS = (
    "backup", "restore", "verify", "drill", "prune", "merge", "compact", "due", "archive", "catalog optimize",
    "catalog rebuild", "log run", "log restore", "log snapshot", "log merge", "log compact", "log truncate",
)  # fmt: skip
#: Fields of requests with the same name as a flag and its setting.
_FIELDS_OF_FLAGS = ("source", "codec", "compression_level", "remote", "runner")


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: its name, its function and the shared flags that it takes. `waits` is the text that a
    terminal shows until the command reports something."""

    name: str
    function: Callable[..., Any]
    shared_flags: Sequence[options.Flag]
    waits: str

    @property
    def help(self) -> str:
        """The help: the function's docstring without the examples."""
        return self._text()[0]

    def command(self) -> PlainCommand:
        """The command in the form that typer runs."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        epilog = options.examples(self._text()[1])
        app.command(self.name, cls=PlainCommand, epilog=epilog)(self._callback())
        return cast("PlainCommand", typer.main.get_command(app))

    def _text(self) -> tuple[str, str]:
        text, _, examples = (getdoc(self.function) or "").partition("\n\nExamples:\n")
        return text, examples

    def _run_and_record(self, call: Call, path: str, values: Mapping[str, Any]) -> Any:
        """Run the function, record in the audit log how it ended, and send the end of a job to `[notify]`.

        When a person interrupts the function, nothing is recorded or sent.
        """
        call.notifies = not call.dry_run and any(f"{path} ".startswith(f"{job} ") for job in JOBS)
        started = time.time()
        try:
            code = self.function(call, **values)
        except Exception as error:
            audit.record(call, path, error)
            if call.notifies:
                call.notify(path, started, error)
            raise
        audit.record(call, path, None)
        if call.notifies:
            call.notify(path, started, None)
        return code

    def _callback(self) -> Callable[..., Any]:
        """The function that typer calls. Its signature has the verb's own flags, then the shared ones."""

        def run(context: typer.Context, **values: Any) -> Any:
            shared = {flag.name: values.pop(flag.name) for flag in self.shared_flags}
            spellings = {option.name: option.opts[0].strip("-") for option in context.command.params}
            flags_in_use = [
                spellings[parameter.name]
                for parameter in own_parameters
                if values[parameter.name] not in (parameter.default.default, None, [])
            ]
            with ExitStack() as stack:
                path = context.command_path.partition(" ")[2]
                call = Call(self.shared_flags, shared, values, flags_in_use, context.obj, stack, path)
                for name, value in values.items():
                    if isinstance(value, LocalTime):
                        values[name] = in_policy_zone(call, f"--{spellings[name]}", value)
                if self.waits:
                    call.report.wait(self.waits)
                return self._run_and_record(call, path, values)

        _, *own_parameters = signature(self.function, eval_str=True).parameters.values()
        context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        parameters = [context, *own_parameters, *(flag.parameter for flag in self.shared_flags)]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        run.__doc__ = self.help
        return run


def verb(
    *groups: options.Flag | Sequence[options.Flag], waits: str | None = None
) -> Callable[[Callable[..., Any]], Verb]:
    """Decorates a function as a verb with these shared flags, those of every verb, and its own.

    The function's name is the verb's name, and its docstring is the help. Under `Examples:` each command
    starts a line; further lines of it are indented deeper. The first parameter is the Call. An int that the
    function returns is the exit code. `waits`: what a terminal shows until the verb reports something; "" for
    nothing.
    """
    flags = [[group] if isinstance(group, options.Flag) else group for group in groups]
    flags_by_name = {flag.name: flag for flag in chain(options.EVERY_VERB, *flags)}
    shared_flags = sorted(flags_by_name.values(), key=lambda flag: _ORDER[flag.name])

    if waits is None:
        reads_catalog, plans = options.AS_OF.name in flags_by_name, options.REMOTE.name in flags_by_name
        waits = "reading the catalog" if reads_catalog else "planning" if plans else ""

    def decorate(function: Callable[..., Any]) -> Verb:
        return Verb(function.__name__.strip("_").replace("_", "-"), function, shared_flags, waits)

    return decorate
