"""What every verb of the command line has: shared flags, the settings in force, a reporter, a Spark session.

    @verb(options.REPO, options.SPARK_JOB)
    def compact(call: Call, all_keyed: bool = switch("--all-keyed", "Help.")) -> None:

The function has its own flags as parameters, and the rest in `call`. A parameter that has the name of a field
of the request goes into it by itself (`call.request`).
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

import typer

from lakebackup.errors import LakebackupError
from lakebackup.rules.times import LocalTime
from lakebackup.storage.uris import require_folder
from lakebackup_jobs.cli import audit
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.values import in_policy_zone, instant, naming, required
from lakebackup_jobs.cli.output.explain import explain
from lakebackup_jobs.cli.output.help import PlainCommand
from lakebackup_jobs.runtime.terminal_text import visible_lines

if TYPE_CHECKING:
    import pyarrow as pa
    from _typeshed import DataclassInstance
    from pyspark.sql import SparkSession

    from lakebackup.config import Properties, Settings
    from lakebackup.store.reader import CatalogReader
    from lakebackup_jobs.cli.output.rows import Brief
    from lakebackup_jobs.cli.output.short_ids import ShortIds
    from lakebackup_jobs.connection import Connection
    from lakebackup_jobs.lifecycle.progress import Reporter
    from lakebackup_jobs.runtime.terminal_table import Screen

Request = TypeVar("Request", bound="DataclassInstance")
# Of an error, in a notification: variables of a command have a limit.
_MOST_TEXT = 4_000
_ORDER = {flag.name: place for place, flag in enumerate(options.ALL)}


class Call:
    """One call of a verb. `flags`: the shared flags it takes, as given; `own`: its own, by their parameters;
    `given`: spellings of its own flags and names of arguments that were given; `session`: a caller's, if any;
    `command`: the verb with its group, such as `backup topics`.
    """

    def __init__(
        self,
        taken: Sequence[options.Flag],
        flags: Mapping[str, Any],
        own: Mapping[str, Any],
        given: Sequence[str],
        session: SparkSession | None,
        stack: ExitStack,
        command: str = "",
    ) -> None:
        self.flags, self.own, self.given, self.session = flags, own, given, session
        self.command = command
        self.json: bool = flags["json"]
        self.wide: bool = flags["wide"]
        self.explain: bool = flags.get("explain", False)
        self.dry_run: bool = self.explain or flags.get("dry_run", False)
        self._taken, self._stack, self._overrides = taken, stack, dict[str, Any]()
        #: Whether `[notify]` hears how the verb ended; the result so far; the request that was made.
        self.notifies, self.outcome = False, dict[str, Any]()
        self.job_request: object = None

    def override(self, **flags: Any) -> Settings:
        """The settings in force, with flags of the verb's own over them; those that are None were not given.

        To be called before the settings are used.
        """
        self._overrides |= flags
        return self.settings

    @cached_property
    def settings(self) -> Settings:
        """The settings in force. Raises UsageProblem, NotFound."""
        from lakebackup.config import is_secret, load, parse_properties, read_properties
        from lakebackup.rules.kafka_properties import check_servers
        from lakebackup.storage.private import require_own

        flags = self.flags
        kafka: dict[str, str] = {}
        if file := flags.get("kafka_config"):
            kafka = read_properties(file)
            require_own(file, "The file of --kafka-config", secret=any(map(is_secret, kafka)))
        kafka |= parse_properties(flags.get("kafka_property") or ())
        if flags.get("bootstrap_server"):
            kafka["bootstrap.servers"] = check_servers(flags["bootstrap_server"], "--bootstrap-server")
        spark = parse_properties(flags.get("spark_conf") or (), "--spark-conf")
        given = {flag.setting: flags[flag.name] for flag in self._taken if flag.setting}
        given |= {**self._overrides, "kafka": kafka or None, "spark": spark or None}
        found = load(given, flags["settings_file"])
        from lakebackup_jobs.connection import use

        use(found)
        return found

    @property
    def where(self) -> str:
        """The repository, where backups are kept. Raises UsageProblem without one, or for a file."""
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
    def places(self) -> tuple[str, str | None]:
        """Where backups and catalog are, None: the catalog is with the backups."""
        return self.where, self.settings.catalog

    @property
    def kafka(self) -> Properties:
        """Kafka's properties. Raises UsageProblem without servers where the verb has a flag for them."""
        found = self.settings.kafka
        if "bootstrap_server" in self.flags:
            required(
                found.get("bootstrap.servers"),
                "--bootstrap-server",
                "which Kafka cluster?",
                hint="Give --bootstrap-server HOST:PORT, set LAKEBACKUP_KAFKA__BOOTSTRAP_SERVERS, "
                "or write it into [kafka] of lakebackup.toml.",
            )
        return found

    def request(self, of: type[Request], /, **more: Any) -> Request:
        """A request whose fields have, by their names, the values of `more`, of the verb's own flags or of
        shared ones, the first of these that there is. A flag that was not given leaves the field's default.
        """
        own = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.own.items()
            if value is not None
        }
        values = {**self._shared(), **own}
        values = {field.name: values[field.name] for field in fields(of) if field.name in values}
        request = of(**{**values, **more})
        self.job_request = request
        return request

    def _shared(self) -> dict[str, Any]:
        """The values of shared flags and settings, by the names that fields of requests have."""
        found, taken = self.settings, self.flags
        values: dict[str, Any] = {
            "destination": self.where,
            "catalog": found.catalog,
            "dry_run": self.dry_run,
            "keys_file": found.log.keys_file,
            "schema_topics": found.schema_topics,
        }
        if "kafka_config" in taken:
            values["kafka"] = self.kafka
        if "target_size" in taken:
            values["target_bytes"] = int(found.target_size)
        if "local_below" in taken:
            values["local_below"] = int(found.local_below)
        if "bandwidth" in taken:
            values["bandwidth"] = found.bandwidth and int(found.bandwidth)
        if "lease_ttl" in taken:
            values["lease_ttl_s"] = found.lease_ttl
        values |= {name: getattr(found, name) for name in _SAME if name in taken}
        if "engine" in taken:
            values["engine"] = taken["engine"] or "auto"
        if "note" in taken:
            values["note"] = taken["note"]
        return values

    def passed_on(self, *but: str) -> list[str]:
        """The shared flags as they were given, for another command; all `but` those of these names."""
        taken = [flag for flag in self._taken if flag.name not in but]
        return [part for flag in taken for part in flag.arguments(self.flags[flag.name])]

    @cached_property
    def report(self) -> Reporter:
        """How the verb reports what it does; closed when the verb ends."""
        from lakebackup_jobs.lifecycle.progress import reporter

        made = reporter(as_json=self.json, wide=self.wide, printer=self._print_result)
        return self._stack.enter_context(made)

    def _print_result(self, values: Mapping[str, Any], out: TextIO, screen: Screen | None) -> None:
        from lakebackup_jobs.cli.output.results.summary import print_summary

        print_summary(values, out, screen, command=self.command, wide=self.wide)

    def spark(self) -> SparkSession | None:
        """The caller's session, or one with the Spark settings given; else None: the job makes its own."""
        found = self.settings
        extra = dict(found.spark) | ({"spark.master": found.master} if found.master else {})
        if self.session is not None or not extra:
            return self.session
        self.report.wait("starting Spark")
        from lakebackup_jobs.runtime.session import spark_session

        return spark_session(remote=found.remote, extra=extra)

    def start_jvm(self, *, sql: bool = False) -> None:
        """Begin to start the JVM that the job would start first, beside what is imported until then.

        `sql`: for SQL too. What goes wrong shows when the job starts it.
        """
        found = self.settings
        if self.session is None and not self.dry_run and not (found.spark or found.master or found.remote):
            from lakebackup_jobs.runtime import background, settings
            from lakebackup_jobs.runtime.java import jvm

            if not jvm.SUBMITTED:
                background.later(lambda: jvm.start(settings.spark_settings(), sql=sql, workers=True))

    def spark_if_needed(self) -> SparkSession | Callable[[], SparkSession] | None:
        """As `spark`, for a job that may do without: a session is made when the job asks for it, and at once
        where a master is named, since what is there is used."""
        found = self.settings
        at_once = found.master and found.runner != "local" and not self.dry_run
        if self.session is not None or at_once or not (found.spark or found.master):
            return self.spark()
        return cast("Callable[[], SparkSession]", self.spark)

    def planner(self) -> SparkSession | None:
        """The session for what only plans: the caller's, or one that flags ask for. Settings start none."""
        asked = self.flags["engine"] == "spark" or self.flags["master"]
        return self.spark() if self.session is not None or asked else None

    def run(
        self, job: Callable[..., dict[str, Any]], request: object, *, spark: bool = True, **more: Any
    ) -> dict[str, Any]:
        """Run a job and report its result, which is returned; with --explain, show the SQL that decides.

        `spark`: the job takes a session.
        """
        result = self.result_of(job, request, spark=spark, **more)
        if not self.explain:
            self.report.result(result)
        return result

    def result_of(
        self, job: Callable[..., dict[str, Any]], request: object, *, spark: bool = True, **more: Any
    ) -> dict[str, Any]:
        """As `run`, without reporting the result; empty with --explain."""
        given: dict[str, Any]
        if "engine" in self.flags and (self.dry_run or not spark):
            given = {"spark": self.planner()}
        elif spark and not self.explain:
            given = {"spark": self.spark_if_needed() if "runner" in self.flags else self.spark()}
        else:
            given = {}
        if self.explain:
            self.explained(lambda: job(request, reporter=self.report, **given, **more))
            return {}
        with self.results_of_failures():
            self.outcome = job(request, reporter=self.report, **given, **more)
        return self.outcome

    @contextmanager
    def results_of_failures(self) -> Iterator[None]:
        """Report what a run did that ends with an error all the same."""
        try:
            yield
        except LakebackupError as error:
            if error.result is not None:
                self.outcome = dict(error.result)
                self.report.result(error.result)
            raise

    @cached_property
    def as_of(self) -> int | None:
        """--as-of in us since 1970 UTC; None: now."""
        if self.flags.get("as_of") is None:
            return None
        with naming("--as-of"):
            then = instant(self.flags["as_of"])
        return 1000 * (in_policy_zone(self, "--as-of", then) if isinstance(then, LocalTime) else then)

    @property
    def screen(self) -> Screen | None:
        """The terminal that standard output is; None if it is none."""
        from lakebackup_jobs.runtime.terminal_table import screen_of

        return screen_of(sys.stdout, wide=self.wide)

    def connection(self, **more: Any) -> Connection:
        """The backups, with the catalog as it was at --as-of. `more`: see `Connection`."""
        from lakebackup_jobs.connection import Connection

        self.where  # noqa: B018 - says which flag is missing
        return Connection(self.settings, as_of=self.as_of, warn=self.warn, **more)

    def reader(self) -> CatalogReader:
        """The catalog, as it was at --as-of; warns when it is behind. Raises NotFound when there is none.

        It is read by DuckDB: no Java is started.
        """
        return self.connection().catalog()

    def notify(self, verb: str, started: float, error: Exception | None) -> None:
        """Tell those whom `[notify]` names how the verb ended, or that it failed so far. Raises nothing."""
        try:
            settings = self.settings
        except LakebackupError:  # which is the error
            return
        from lakebackup.config import NotifyOptions

        if settings.notify == NotifyOptions():
            return
        from lakebackup_jobs.runtime.masking import secrets_of, without_secrets
        from lakebackup_jobs.runtime.notify import Event, send

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
            error=without_secrets(text, secrets)[:_MOST_TEXT] if error else None,
            started=started,
            finished=time.time(),
            counts=numbers,
        )
        for place, problem in send(settings.notify, event).items():
            if problem:
                self.warn(f"[notify] {place}: {without_secrets(problem, secrets)}")

    def warn(self, text: str) -> None:
        """A warning on standard error, where with --json all is JSON."""
        self._say("warning", text, f"warning: {text}")

    def note(self, text: str) -> None:
        """A remark on standard error, where with --json all is JSON."""
        self._say("note", text, text)

    def _say(self, event: str, text: str, line: str) -> None:
        self.report.clear()
        if self.json:
            from lakebackup_jobs.lifecycle.progress import event_line

            line = event_line(event, {"message": text})
        print(line if self.json else visible_lines(line), file=sys.stderr)

    def explained(self, plan: Callable[[], Any]) -> None:
        """Run `plan`, which changes nothing, and print what it asked the catalog."""
        explain(plan, self.report.clear, as_json=self.json)

    def short_ids(self, reader: CatalogReader) -> ShortIds | None:
        """Makes ids of backups short, for a terminal; None where they are shown in full."""
        if self.screen is None or self.wide or self.json or self.flags.get("csv"):
            return None
        from lakebackup_jobs.cli.output.short_ids import ShortIds

        return ShortIds(row["backup_id"] for row in reader.rows("backup_ids"))

    def show(self, values: Mapping[str, Any], sentences: Sequence[str] | None = None) -> None:
        """Write values for a person, or as one line of JSON; without the events of a run around them.

        A person gets the `sentences` instead where they are given, and the values too with --wide."""
        from lakebackup_jobs.cli.output.pager import paged
        from lakebackup_jobs.cli.output.rows import json_line
        from lakebackup_jobs.lifecycle.progress import JSON_VERSION, print_result, reader_may_leave
        from lakebackup_jobs.runtime.terminal_text import visible

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
        from lakebackup_jobs.cli.output.pager import paged
        from lakebackup_jobs.lifecycle.progress import reader_may_leave

        self.report.clear()
        with paged(), reader_may_leave():
            sys.stdout.writelines(lines)
            sys.stdout.flush()

    def write(
        self,
        rows: pa.RecordBatchReader,
        columns: Sequence[str] | None = None,
        brief: Brief | None = None,
    ) -> None:
        """Write rows as a table of `columns`, on a terminal as `brief` says; or as JSON lines or as CSV,
        which have all columns."""
        from lakebackup_jobs.cli.output.rows import write

        self.report.clear()
        csv = self.flags["csv"]
        pages = not (self.json or csv)
        write(rows, as_json=self.json, as_csv=csv, wide=self.wide, pages=pages, columns=columns, brief=brief)


#: Verbs, or groups of them, whose end `[notify]` hears of: what a schedule runs.
JOBS = (
    "backup", "restore", "verify", "drill", "prune", "merge", "compact", "due", "archive", "catalog optimize",
    "catalog rebuild", "log run", "log restore", "log snapshot", "log merge", "log compact", "log truncate",
)  # fmt: skip
#: Fields of requests that have the name of a flag and of its setting.
_SAME = ("source", "codec", "compression_level", "remote", "runner")


@dataclass(frozen=True, slots=True)
class Verb:
    """A command: its name, its function, and the shared flags that it takes."""

    name: str
    function: Callable[..., Any]
    taken: Sequence[options.Flag]
    waits: str

    @property
    def help(self) -> str:
        """The function's docstring without the examples."""
        return self._text()[0]

    def command(self) -> PlainCommand:
        """The command as typer runs it."""
        app = typer.Typer(add_completion=False, rich_markup_mode=None)
        epilog = options.examples(self._text()[1])
        app.command(self.name, cls=PlainCommand, epilog=epilog)(self._callback())
        return cast("PlainCommand", typer.main.get_command(app))

    def _text(self) -> tuple[str, str]:
        text, _, examples = (getdoc(self.function) or "").partition("\n\nExamples:\n")
        return text, examples

    def _notified(self, call: Call, path: str, values: Mapping[str, Any]) -> Any:
        """Run the function, and record how it ended; of a job, those whom `[notify]` names hear that too.
        Not of one that a person interrupted."""
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
        """What typer calls. Its signature has the verb's own flags, then the shared ones."""

        def run(context: typer.Context, **values: Any) -> Any:
            shared = {flag.name: values.pop(flag.name) for flag in self.taken}
            spelled = {one.name: one.opts[0].strip("-") for one in context.command.params}
            given = [
                spelled[one.name] for one in own if values[one.name] not in (one.default.default, None, [])
            ]
            with ExitStack() as stack:
                path = context.command_path.partition(" ")[2]
                call = Call(self.taken, shared, values, given, context.obj, stack, path)
                for name, value in values.items():
                    if isinstance(value, LocalTime):
                        values[name] = in_policy_zone(call, f"--{spelled[name]}", value)
                if self.waits:
                    call.report.wait(self.waits)
                return self._notified(call, path, values)

        _, *own = signature(self.function, eval_str=True).parameters.values()
        context = Parameter("context", Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
        parameters = [context, *own, *(flag.parameter for flag in self.taken)]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.__doc__ = self.help
        return run


def verb(
    *groups: options.Flag | Sequence[options.Flag], waits: str | None = None
) -> Callable[[Callable[..., Any]], Verb]:
    """A verb that takes these shared flags and those of every verb beside its own.

    The function's name is the verb's, its docstring the help; under `Examples:` each command has a line, or
    more that are indented deeper. Its first parameter is the Call. An int that it returns is the exit code.
    `waits`: what a terminal shows at once, until there is more to say; "" where that is at once.
    """
    flags = [[group] if isinstance(group, options.Flag) else group for group in groups]
    named = {flag.name: flag for flag in chain(options.EVERY_VERB, *flags)}
    taken = sorted(named.values(), key=lambda flag: _ORDER[flag.name])

    if waits is None:
        asks, plans = options.AS_OF.name in named, options.REMOTE.name in named
        waits = "reading the catalog" if asks else "planning" if plans else ""

    def decorate(function: Callable[..., Any]) -> Verb:
        return Verb(function.__name__.strip("_").replace("_", "-"), function, taken, waits)

    return decorate
