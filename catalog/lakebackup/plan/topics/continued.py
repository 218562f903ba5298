"""What a restore must still bring into topics that earlier restores have filled."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.plan.topics.request import read_parts
from lakebackup.rules.times import format_ts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup.store.reader import CatalogReader


def plan_rest(
    made: RestorePlan, cluster: str, into: Mapping[str, str], restore_id: str | None
) -> RestorePlan:
    """The part of a plan that earlier restores into the same topics did not bring.

    `into`: source topic -> id of its target topic in `cluster`, of those that are there. `restore_id`: of the
    run that this one resumes, which does not count.

    Raises Refused when an earlier restore did not end, left out records after some time, or brought
    another history of the topic, or one that was cut back.
    """
    reader = made.chosen.reader
    names = {topic.scope: topic.target for topic in made.topics}
    _refuse_unfinished(reader, cluster, into, names, restore_id)
    parameters: dict[str, Any] = {
        "source": made.source,
        "cluster": cluster,
        "targets": target_list(into),
        "restore_id": restore_id,
    }
    for row in reader.rows("restored_forks", **parameters):
        raise Refused(
            f"Topic {names[row['scope']]}, partition {row['region']}, holds records that were cut from the "
            f"history of topic {row['scope']} since: backup {row['backup_id']} is out of sync.",
            hint="Restore into another topic with --map.",
        )
    epochs = {topic.scope: topic.epoch for topic in made.topics}
    until: dict[tuple[str, str], int] = {}
    for row in reader.rows("restored_until", **parameters):
        scope = row["scope"]
        if row["epoch"] != epochs[scope]:
            raise Refused(
                f"Topic {names[scope]} holds records of an earlier topic {scope}, "
                "which was deleted and recreated since.",
                hint="Restore into another topic with --map.",
            )
        if row["to_ts"] is not None:
            raise Refused(
                f"Topic {names[scope]} was restored to {format_ts(row['to_ts'])}: records after that were "
                "left out between others, and cannot be inserted any more.",
                hint="Restore into another topic with --map.",
            )
        until[scope, row["region"]] = row["position"]
    files = made.chosen.narrowed("selected_rest", **parameters)
    parts = read_parts(files)
    topics = tuple(replace(t, parts=tuple(p for p in parts if p.scope == t.scope)) for t in made.topics)
    return replace(made, chosen=files, topics=topics, until=until)


def target_list(into: Mapping[str, str]) -> str:
    """`into` as the queries take it."""
    return ",".join(f"{scope}={epoch}" for scope, epoch in sorted(into.items()))


def _refuse_unfinished(
    reader: CatalogReader,
    cluster: str,
    into: Mapping[str, str],
    names: Mapping[str, str],
    restore_id: str | None,
) -> None:
    for row in reader.rows("open_restores"):
        target = json.loads(row["detail"] or "{}").get("into") or {}
        if row["restore_id"] == restore_id or target.get("cluster") != cluster:
            continue
        shared = sorted(set(target["topics"].values()) & set(into.values()))
        if shared:
            topic = next(names[scope] for scope, epoch in into.items() if epoch in shared)
            raise Refused(
                f"Restore {row['restore_id']} into topic {topic} did not end: "
                "it is not known yet what it restored.",
                hint="Run its command again to resume it; then continue.",
            )
