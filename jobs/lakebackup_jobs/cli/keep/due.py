"""`lakebackup due`: show or run the backups and drills that are due by policy, for example from cron."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime

from lakebackup.errors import Incomplete, UsageProblem, error_of
from lakebackup.rules import layout
from lakebackup.store.reader import CatalogReader
from lakebackup.store.trust import HINT, Unapproved
from lakebackup_jobs.cli import main
from lakebackup_jobs.cli.flags import options
from lakebackup_jobs.cli.flags.options import switch
from lakebackup_jobs.cli.interrupt import EXIT_CODES
from lakebackup_jobs.cli.verb import Call, verb
from lakebackup_jobs.upkeep import policies
from lakebackup_jobs.upkeep.next_run import from_future, next_run

_KAFKA = tuple(flag.name for flag in (options.BOOTSTRAP, options.KAFKA_CONFIG))


@verb(options.REPO, options.ONE_SOURCE, options.BOOTSTRAP, options.KAFKA_CONFIG)
def due(call: Call, run: bool = switch("--run", "Run the backups that are due, one after another.")) -> None:
    """Show which backups are due, or run them. It exits immediately if none is due.

    For a Kafka cluster it backs up the topics that match the policy's patterns, including new ones
    (`policy set --pattern`). Without patterns it backs up the topics that are in any backup of the source;
    the view unprotected_topics lists the others. For other sources it runs the policy's command
    (`policy set --command`), such as a snapshot of a folder. For a change feed it makes a full from the log.
    Restore drills that are due (`policy set --drill`) run last. With `evidence_folder` under [signing], they
    leave evidence there.

    Examples:
        lakebackup due --repo ./backups
        */5 * * * *  /usr/local/bin/lakebackup due --run --config /etc/lakebackup.toml >/dev/null   # for cron
    """
    call.notifies = run
    repo = call.repository
    source = call.flags["source"]  # not from the settings, since a source there would hide other policies
    reader = CatalogReader.require(*call.repository_and_catalog)
    unreadable: list[UsageProblem] = []
    now_ms = time.time_ns() // 1_000_000
    backups = policies.due(reader, source, now_ms, unreadable.append)
    call.notifies = run and bool(unreadable)  # each backup sends its own notification
    rows = [asdict(due_run) | {"command": shlex.join(due_run.command)} for due_run in backups]
    if run and not backups and not call.json:
        # Not on standard output: cron would mail it.
        call.report.note("Nothing is due.")
    elif backups or not unreadable or call.json:
        call.report.result({"due": rows, "next": next_run(reader, source, now_ms)})
    unapproved = list(dict.fromkeys(due_run.unapproved for due_run in backups if due_run.unapproved))
    for text in [*unapproved, *from_future(reader, source)]:
        call.warn(text)
    if not run:
        _require_success([], unreadable, unapproved)
        return
    shared = ["--repo", repo, *call.shared_arguments("repo", "source", *_KAFKA)]
    kafka = call.shared_arguments(*(name for name in call.flags if name not in _KAFKA))

    def run_command(words: Sequence[str]) -> int:
        reads_kafka = words[:2] in (("backup", "topics"), ("backup", "queue"))
        code = main([*words, *shared, *(kafka if reads_kafka else ())], call.session)
        if code in EXIT_CODES:
            raise KeyboardInterrupt  # the signal ends all due runs
        return code

    def words(due_run: policies.Due) -> list[str]:
        folder = call.settings.signing.evidence_folder
        if folder is None or due_run.run != "drill":
            return [*due_run.command]
        name = f"drill-{layout.encode_name(due_run.source)}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
        return [*due_run.command, "--evidence", f"{folder}/{name}"]

    codes = [(due_run.source, run_command(words(due_run))) for due_run in backups if not due_run.unapproved]
    _require_success([(source, code) for source, code in codes if code], unreadable, unapproved)


def _require_success(
    failed: Sequence[tuple[str, int]], unreadable: Sequence[UsageProblem], unapproved: Sequence[str]
) -> None:
    """Raise an error if runs failed, or if policies cannot be read or were not approved here.

    `failed` has (source, exit code) of each failed run. If all problems have the same exit code, the error is
    the one with that code, so that a scheduler sees, for example, that a source is busy. Otherwise it is
    Incomplete.
    """
    codes = {code for _, code in failed} | {problem.exit_code for problem in unreadable}
    codes |= {Unapproved.exit_code} if unapproved else set()
    if not codes:
        return
    names = ", ".join(source for source, _ in failed)
    texts = [f"What was due of {names} failed."] if failed else []
    hint = "See the errors above. Backups stay due."
    if unapproved:
        texts.append(f"{len(unapproved)} policies were not approved here: what they schedule was not run.")
        hint = HINT
    if unreadable:
        hint = unreadable[0].hint
    error = error_of(codes.pop()) if len(codes) == 1 else Incomplete
    raise error("\n".join([*texts, *dict.fromkeys(problem.message for problem in unreadable)]), hint=hint)
