"""The text for checks, drills, prunes, merges and compactions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lakebackup_jobs.cli.output.results.phrases import (
    NOTHING_WRITTEN,
    amount,
    as_of,
    duration,
    is_or_are,
    listed,
    moment,
    several,
)
from lakebackup_jobs.cli.output.results.summary import Summary, Table
from lakebackup_jobs.lifecycle.progress import human_bytes
from lakebackup_jobs.query.words import counted, span

_CHECKS = {
    "stat": "by existence and size",
    "hash": "by SHA-256",
    "decode": "by SHA-256 and record by record",
    "restore": "by SHA-256 and by a trial restore",
}
_FINDINGS = {"outcome": "outcome", "backup_id": "backup", "path": "file", "detail": "detail"}
_DRILLS = {
    "source": "source", "backup_id": "backup", "outcome": "outcome", "files": "files", "bytes": "size",
    "took": "took", "expected": "expected", "detail": "detail",
}  # fmt: skip
_PRUNED_BACKUPS = {
    "backup_id": "backup",
    "kind": "kind",
    "end_ts": "end",
    "reason": "reason",
    "files": "files",
    "bytes": "size",
}
_PRUNED_TOPICS = {
    "topic": "topic",
    "older_than": "older than",
    "keep_bytes": "beyond",
    "files": "files",
    "bytes": "size",
}
_PRUNED_TABLES = {"table": "table", "files": "files", "bytes": "size"}
_KEY_PROBLEMS = {"source": "source", "backup_id": "backup", "problem": "problem"}
_MERGED = {"backup_id": "backup", "kind": "kind", "level": "level", "end_ts": "end"}
_COMPACTED = {"topic": "topic", "entries": "records", "files": "files", "bytes": "size"}


_SIGNATURE_FINDINGS = {"source": "source", "fault": "fault", "text": "detail"}


def verify(values: Mapping[str, Any]) -> Summary:
    """A check of stored files, or of signatures."""
    if "links" in values:
        return _signatures(values)
    method, time_taken = _CHECKS.get(values["mode"], f"({values['mode']})"), duration(values.get("seconds"))
    wrong = [f"{values[name]:,} {name}" for name in ("missing", "changed", "damaged") if values.get(name)]
    checked = values["objects"] - (values.get("orphan") or 0)
    if wrong:
        sentences = [f"Checked {counted(checked, 'stored file')} {method}{time_taken}: {listed(wrong)}."]
    else:
        sentences = [f"All {counted(checked, 'stored file')} are intact, checked {method}{time_taken}."]
        if checked == 1:
            sentences = [f"The 1 stored file is intact, checked {method}{time_taken}."]
    if count := values.get("unconfirmed"):
        subject = f"{counted(count, 'backup')} {is_or_are(count)} unconfirmed"
        sentences.append(f"{subject}: the marker that confirms a backup is missing.")
    if count := values.get("orphan"):
        sentences.append(f"No backup names {counted(count, 'file')} in the storage: see the view `orphans`.")
    if count := values.get("filters_lost"):
        sentences.append(
            f"{counted(count, 'key filter')} {is_or_are(count)} lost: a search by key reads more files."
        )
    for failure in values.get("failed") or ():
        sentences.append(f"The trial restore of backup {failure['backup_id']} failed: {failure['detail']}")
    findings = values.get("findings") or ()
    return Summary(sentences, Table(findings, _FINDINGS) if findings else None)


def _signatures(values: Mapping[str, Any]) -> Summary:
    links, keys = counted(values["links"], "link"), listed(key[:16] for key in values["signers"]) or "no key"
    backups, time_taken = counted(values["backups"], "backup"), duration(values.get("seconds"))
    sentences = [f"{backups} in {links} of signatures by {keys}{time_taken}."]
    if count := values.get("unsigned"):
        subject = f"{counted(count, 'backup')} {is_or_are(count)}"
        sentences.append(f"{subject} not signed: older than the first signature of the source.")
    if count := values.get("audit_entries"):
        sentences.append(f"{counted(count, 'row')} of the audit log {is_or_are(count)} signed.")
    if count := values.get("unsigned_audit_entries"):
        subject = f"{counted(count, 'row')} of it {is_or_are(count)}"
        sentences.append(f"{subject} not signed: older than its first signature, or without an effect.")
    findings = values.get("findings") or ()
    if not findings:
        sentences.append("The catalog and the manifests are as they were signed; data files were not read.")
    return Summary(sentences, Table(findings, _SIGNATURE_FINDINGS) if findings else None)


def drill(values: Mapping[str, Any]) -> Summary:
    """Restore drills, or a plan of them."""
    rows = [_drill_row(row) for row in values["drills"]]
    seed = (
        f" --seed {values['seed']} draws the same restore points again."
        if values.get("seed") is not None
        else ""
    )
    if values.get("dry_run"):
        sources = listed(row["source"] for row in rows)
        return Summary(
            [f"Would restore {counted(len(rows), 'restore point')} on trial, of {sources}.{seed}"],
            Table(rows, _DRILLS),
        )
    good = sum(row["outcome"] == "ok" for row in rows)
    time_taken = duration(values.get("seconds"))
    total = len(rows) + values.get("busy", 0) + len(values.get("not_opened", ()))
    if total == 1 and good:
        row = rows[0]
        size = amount(row["files"], "file", row["bytes"])
        sentence = (
            f"The restore of {row['source']} is what was backed up: {size}, restored in {row['took']} "
            f"(backup {row['backup_id']}{as_of(row['to_ts'])})."
        )
        return Summary([sentence + seed])
    sentences = [f"{good:,} of {counted(total, 'drill')} restored what was backed up{time_taken}.{seed}"]
    checks = values.get("found") or ()
    sentences += [
        f"The check returned a row of {checked['source']}: {_row_text(checked['row'])}" for checked in checks
    ]
    return Summary(sentences, Table(rows, _DRILLS))


def prune(values: Mapping[str, Any]) -> Summary:
    """The backups and files that a prune deleted, or would delete."""
    source, backups, deleted = values["source"], values["of_backups"], values.get("deleted")
    size = f"{values['files']:,} of {counted(values['of_files'], 'file')}"
    size += f" ({human_bytes(values['bytes'])} of {human_bytes(values['of_bytes'])})"
    if not backups and not values["files"]:
        size_kept = amount(values["of_files"], "file", values["of_bytes"])
        reason = f": all {size_kept} are kept" if values["of_files"] else ""
        sentences = [f"Nothing to delete in {source}{reason}."]
    else:
        subject = f"{counted(backups, 'backup')} and {size}" if backups else size
        verb = "Deleted" if deleted else "Would delete"
        sentences = [f"{verb} {subject} of {source}{duration(values.get('seconds'))}."]
        if values.get("report_only"):
            sentences = [f"{subject} of {source} can go. Delete them with the program that made them."]
        elif not deleted:
            sentences.append("Nothing was deleted yet: run the same command with --delete.")
    if values.get("resumed"):
        sentences.append("This continued an interrupted prune.")
    return Summary([*sentences, *_retained(values)], _pruned(values), _more_backups(values))


def merge(values: Mapping[str, Any]) -> Summary:
    """A merge of backups into one, or a plan of one."""
    source, merged = values["source"], values["merged"]
    if not merged:
        return Summary([f"Nothing to merge in {source}: {values['because']}."])
    size = amount(values["entries"], "record", values["bytes"])
    subject = f"{counted(len(merged), 'backup')} of {source} into one {values['kind']} backup"
    omissions = [f"Left out: {listed(values['left_out'])}."] if values.get("left_out") else []
    if values.get("dry_run"):
        return Summary(
            [f"Would merge {subject}: {size}. {NOTHING_WRITTEN}", *omissions], Table(merged, _MERGED)
        )
    if "made_bytes" in values:
        size = f"{size} became {amount(values['made_files'], 'file', values['made_bytes'])}"
    resumed = " This continued an interrupted merge." if values.get("resumed") else ""
    sentence = f"Merged {subject}, {values['backup_id']}: {size}{duration(values.get('seconds'))}.{resumed}"
    return Summary([sentence, *omissions], Table(merged, _MERGED))


def tested_keys(values: Mapping[str, Any]) -> Summary:
    """A test of the data keys of backups with an identity."""
    sentence = f"The identity opens {values['opened']} of {counted(values['keys'], 'data key')}."
    return Summary([sentence], Table(values["problems"], _KEY_PROBLEMS))


def rotated_keys(values: Mapping[str, Any]) -> Summary:
    """A rotation of the recipients of data keys."""
    keys, recipients = counted(values["keys"], "data key"), ", ".join(values["recipients"])
    if values.get("dry_run"):
        return Summary([f"Would wrap {keys} for {recipients}.", "Nothing was written."])
    sentence = f"Wrapped {values['wrapped']} of {keys} for {recipients}{duration(values.get('seconds'))}."
    return Summary([sentence], Table(values["problems"], _KEY_PROBLEMS))


def compact(values: Mapping[str, Any]) -> Summary:
    """A compaction of topics to the latest record of each key, or a plan of one."""
    source, topics = values["source"], values["topics"]
    omissions = [
        f"Left out: topic {row['topic']}, since {row['because']}." for row in values.get("left_out") or ()
    ]
    if not topics:
        return Summary([f"Nothing to compact in {source}.", *omissions])
    subject = listed(row["topic"] for row in topics)
    size = amount(values["entries"], "record", values["bytes"])
    if values.get("dry_run"):
        sentences = [f"Would compact {subject} of {source}: {size} to read. {NOTHING_WRITTEN}"]
    else:
        size_after = amount(values["kept_entries"], "record", values["kept_bytes"])
        ids = listed(values["backup_ids"])
        time_taken = duration(values["seconds"])
        sentences = [
            f"Compacted {subject} of {source}: {size} became {size_after}{time_taken} (backup {ids})."
        ]
    rows = several(topics)
    return Summary([*sentences, *omissions], Table(rows, _COMPACTED) if rows else None)


def _drill_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "took": span(row.get("real_ms")), "expected": span(row.get("predicted_ms"))}


def _row_text(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in row.items())


def _pruned(values: Mapping[str, Any]) -> Table | None:
    """The table of deletions: whole backups, or else topics, or else tables."""
    if values["backups"]:
        return Table(values["backups"], _PRUNED_BACKUPS)
    if topics := [
        {**row, "older_than": moment(row["older_than"])} for row in values.get("topics") or () if row["files"]
    ]:
        return Table(topics, _PRUNED_TOPICS)
    tables = several(values.get("tables") or ())
    return Table(tables, _PRUNED_TABLES) if tables else None


def _more_backups(values: Mapping[str, Any]) -> Sequence[str]:
    hidden = values["of_backups"] - len(values["backups"])
    return [f"and {counted(hidden, 'more backup')}: see the view `obsolete_backups`"] if hidden > 0 else []


def _retained(values: Mapping[str, Any]) -> Iterator[str]:
    """Yields sentences on what stays although the rules do not keep it, and why."""
    if held_regions := values.get("held"):
        restores = sorted({row["restore_id"] for row in held_regions})
        yield f"Files stay that unfinished restores read: {listed(restores)}."
    if bound := values.get("bound"):
        keep = "keeps" if bound == 1 else "keep"
        yield f"{counted(bound, 'partition')} {keep} older files that restore points need."
    for row in values.get("left_alone") or ():
        yield f"Topic {row['topic']} is left alone: {row['reason']}."
    if files := values.get("held_back_files"):
        size = human_bytes(values["held_back_bytes"])
        text = "that no backup needs stay, since they are packed together with files that one needs."
        yield f"{counted(files, 'file')} ({size}) {text}"
    if released := values.get("released"):
        yield f"No full needs these snapshots any more, so a prune can delete them: {listed(released)}."
