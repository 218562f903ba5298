"""Restore into topics. New topics get their saved settings; retention is suspended during the restore."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import pyarrow.compute as pc

from lakebackup.errors import LakebackupError, Refused, UsageProblem
from lakebackup.plan.partitions import TopicState
from lakebackup.plan.topics.request import RestoreRequest
from lakebackup.plan.topics.restore import RestorePlan, TopicPart
from lakebackup.rows.base import UNKNOWN
from lakebackup.rows.topics import IN_PART, Translation
from lakebackup.rules.patterns import GROUP, compile_pattern
from lakebackup.rules.topic_settings import TopicSettings
from lakebackup.storage import Storage, open_storage
from lakebackup.store.plan_file import PlanFile
from lakebackup.store.reader import CatalogReader
from lakebackup.store.translations import put_rows
from lakebackup_jobs.kafka.admin import rights
from lakebackup_jobs.kafka.admin.cluster import outlasting_restarts
from lakebackup_jobs.kafka.admin.topic_changes import NewTopic
from lakebackup_jobs.kafka.client.engine import QUEUE_BYTES
from lakebackup_jobs.lifecycle.tasks.memory import bytes_to_write, largest_record, tasks_at_once
from lakebackup_jobs.lifecycle.tasks.region_outcome import RegionOutcome
from lakebackup_jobs.targets import Target
from lakebackup_jobs.targets.opening import open_target
from lakebackup_jobs.targets.record_file import RecordFile
from lakebackup_jobs.targets.records import Records
from lakebackup_jobs.targets.registries import Registries
from lakebackup_jobs.targets.replay_task import ReplayJob, producer_of
from lakebackup_jobs.targets.settings_before import SettingsBefore
from lakebackup_jobs.targets.topics import RestoredTopic, Topics, group_of
from lakebackup_jobs.targets.used_schemas import compare_schemas

# Threads that mostly wait for the brokers, each for a task.
_THREADS = 200


def target_of(request: RestoreRequest, reader: CatalogReader) -> Target:
    """The target of a restore of topics. Raises UsageProblem."""
    topic_flags = {
        "--continue": request.continued,
        "--repartition": request.repartition,
        "--partitions": request.partitions,
        "--group-pattern": request.groups,
    }
    flags = [name for name, value in topic_flags.items() if value]
    if flags and not request.target.startswith("kafka:"):
        raise UsageProblem(f"{', '.join(flags)}: only where the records go into topics (--to kafka://…).")
    if request.to_file:
        if request.append:
            raise UsageProblem("--append: only into topics and Delta tables.", hint="Name a new file.")
        form, _, path = request.target.partition(":")
        return RecordFile(request, form, path, reader)
    return open_target(
        request, request.target, lambda servers: KafkaTarget(request, servers, reader), append=request.append
    )


class KafkaTarget(Target):
    """Topics of the cluster at `servers`, written in Kafka transactions that carry the restore's progress."""

    def __init__(self, request: RestoreRequest, servers: str, reader: CatalogReader) -> None:
        if request.settings not in ("auto", "saved", "suspended"):
            raise UsageProblem(f"--topic-settings {request.settings!r}: use auto, saved or suspended.")
        if request.partitions is not None and not request.repartition:
            raise UsageProblem(
                "--partitions changes where records belong.", hint="Give --repartition too: by key."
            )
        self.name = f"kafka://{servers}"
        self._request = request
        self._client = {**request.kafka, "bootstrap.servers": servers}
        self._cluster = Topics(self._client)
        self._restore_id = ""
        self._own_groups: list[str] = []
        self._notes: list[str] = []
        self._settings_by_topic: dict[str, Mapping[str, str] | None] = {}
        self._finished_topics: list[TopicState] = []
        self._reader = reader
        self._registries = Registries(request, self._client, reader)

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        existing = set(self._cluster.topic_names())
        if missing := self._missing_rights(plan, existing):
            return {"refused_because": rights.lacks(missing), "refused_hint": rights.GRANT}
        return {
            "target_topics": [
                {
                    "target": t.target,
                    "action": "write into" if t.target in existing else "create",
                    **({"placed": "by key"} if self._request.repartition else {}),
                    **({"notes": list(notes)} if (notes := self._notes_of(t, existing)) else {}),
                    "refused_because": misfit,
                }
                for t, misfit in zip(plan.topics, self._misfits(plan, existing), strict=True)
            ],
            **self._described_schemas(plan),
        }

    def _described_schemas(self, plan: RestorePlan) -> dict[str, Any]:
        sentences = self._schemas(plan)
        if not sentences:
            return {}
        refused = {"refused_because": "; ".join(sentences)} if self._request.strict_schemas else {}
        return {"schemas": sentences, **refused}

    def _schemas(self, plan: RestorePlan) -> list[str]:
        """Sentences on schema ids in the records that mean something else at the target."""
        strict = self._request.strict_schemas
        return compare_schemas(plan, self._reader, self._registries, all_files=strict)

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        self._restore_id = restore_id
        existing = set(self._cluster.topic_names())
        rights.require(self._missing_rights(plan, existing))
        if not resumed:
            misfits = [*filter(None, self._misfits(plan, existing))]
            if misfits:
                raise Refused(
                    "; ".join(misfits) + ".",
                    hint="Restore into another topic with --map a=b; --append adds to records, --continue "
                    "what earlier restores did not bring; --repartition takes any number of partitions.",
                )
            sentences = self._schemas(plan)
            if sentences and self._request.strict_schemas:
                raise Refused(
                    "; ".join(sentences) + ".",
                    hint="Restore the registry's topic first, or register these schemas with the same ids. "
                    "Without --strict-schemas this is a warning.",
                )
            self._notes += sentences
        states_by_name = {
            state.scope: state for state in self._cluster.describe({t.target for t in plan.topics} & existing)
        }
        # The interrupted run has recorded the settings of the topics that it did not create itself.
        own_settings = self._settings_before.read if resumed else self._settings_before.record
        self._settings_by_topic = {name: own_settings(state) for name, state in states_by_name.items()}
        created: list[str] = []
        try:
            self._cluster.suspend(states_by_name)
            new_topics = [self._new(t) for t in plan.topics if t.target not in existing]
            self._notes += self._cluster.make(new_topics, created)
            self._cluster.wait_until_served({topic.name: topic.regions for topic in new_topics})
            rights.require(self._rights.of_topics(created), outcome="No record is written")
        except LakebackupError:
            if not resumed:
                self._undo(created, states_by_name)
            raise

    def _missing_rights(self, plan: RestorePlan, existing: Collection[str]) -> Sequence[str]:
        targets = {t.target for t in plan.topics if not self._cluster.misfit(t.target)}
        return [
            *self._rights.missing(targets, existing),
            *self._rights.of_groups(self._groups_to_set(plan), ()),
        ]

    def _groups_to_set(self, plan: RestorePlan) -> set[str]:
        """The consumer groups of the request with offsets in the topics, as of the topics' newest backup."""
        expressions = [compile_pattern(text, kind=GROUP) for text in self._request.groups]
        scopes = {t.scope for t in plan.topics}
        rows = self._reader.rows("groups_of_points", source=plan.source) if expressions else ()
        names = {
            str(row["group_id"]) for row in rows if row["scope"] in scopes and row["position"] is not None
        }
        return {name for name in names if any(e.fullmatch(name) for e in expressions)}

    @cached_property
    def _rights(self) -> rights.Rights:
        return rights.Rights(self._client)

    def _undo(self, created: Sequence[str], states_by_name: Mapping[str, TopicState]) -> None:
        """Undo `prepare` before any record is written: delete the created topics, and put the settings of the
        others back."""
        for name, state in states_by_name.items():
            own = self._settings_by_topic.get(name)
            if own is not None:
                with suppress(LakebackupError):  # then the settings stay recorded
                    self._cluster.restore_own_settings(name, own)
                    self._settings_before.forget(state)
        for name in created:
            with suppress(LakebackupError):  # this user may not delete topics
                if not self._cluster.offset_counts(self._cluster.describe([name]))[name]:
                    self._cluster.delete_topic(name)

    @cached_property
    def _settings_before(self) -> SettingsBefore:
        return SettingsBefore(open_storage(self._request.destination), self._cluster.cluster_id())

    def _new(self, topic: TopicPart) -> NewTopic:
        regions = self._request.partitions or topic.regions
        return NewTopic(topic.target, regions, topic.replication, topic.settings.own)

    def _notes_of(self, topic: TopicPart, existing: Collection[str]) -> Sequence[str]:
        return () if topic.target in existing else self._cluster.notes(self._new(topic))

    def target_ids(self, plan: RestorePlan) -> dict[str, Any]:
        existing = set(self._cluster.topic_names())
        scopes_by_target = {t.target: t.scope for t in plan.topics if t.target in existing}
        return {
            "cluster": self._cluster.cluster_id(),
            "topics": {
                scopes_by_target[state.scope]: state.epoch
                for state in self._cluster.describe(scopes_by_target)
            },
        }

    def _misfits(self, plan: RestorePlan, existing: Collection[str]) -> Sequence[str | None]:
        """Why each topic of the plan cannot be restored into its target; None: it can."""
        names = {t.target for t in plan.topics if not self._cluster.misfit(t.target)}
        states = self._cluster.describe(names & set(existing))
        offsets, states_by_name = self._cluster.offset_counts(states), {s.scope: s for s in states}
        same_metrics = defaultdict(set)
        for name in sorted({t.target for t in plan.topics}):
            same_metrics[_metric_name(name)].add(name)
        misfits = {
            t.target: self._cluster.misfit(t.target)
            or (
                self._misfit(plan, t, states_by_name[t.target], offsets[t.target])
                if t.target in states_by_name
                else self._misfit_of_new(plan, t, same_metrics[_metric_name(t.target)] - {t.target})
            )
            for t in plan.topics
        }
        fitting = {t.target: t for t in plan.topics if not misfits[t.target]}
        refusals = self._cluster.refusals(
            [self._new(t) for name, t in fitting.items() if name not in states_by_name],
            fitting.keys() & states_by_name.keys(),
        )
        return [misfits[t.target] or refusals.get(t.target) for t in plan.topics]

    def _misfit(self, plan: RestorePlan, topic: TopicPart, state: TopicState, offsets: int) -> str | None:
        """Why a topic cannot be restored into one that exists; None: it can."""
        partitions = self._request.partitions or (None if self._request.repartition else topic.regions)
        if partitions not in (None, state.regions):
            return f"topic {topic.target} has {state.regions} partitions, the backup {topic.regions}"
        if topic.scope in self._registries.of(plan):
            return self._registries.misfit(plan, topic, partitions=state.regions, offsets=offsets)
        if (
            offsets
            and not self._request.append
            and topic.scope not in {scope for scope, _ in plan.until or ()}
        ):
            provenance = ", and no restore that is known brought them" if plan.until is not None else ""
            return f"topic {topic.target} holds records already ({offsets} offsets){provenance}"
        return None

    def _misfit_of_new(self, plan: RestorePlan, topic: TopicPart, names_alike: Collection[str]) -> str | None:
        """Why a topic cannot be restored into a new one; None: it can. `names_alike`: the other targets whose
        names collide with its name."""
        if topic.scope in self._registries.of(plan) and (
            why := self._registries.misfit(plan, topic, partitions=1, offsets=0)
        ):
            return why
        for name in sorted(names_alike):
            return f"topics {name} and {topic.target} cannot be in one cluster: their names collide"
        return None

    def write(self, content: Records) -> list[RegionOutcome]:
        plan, shares, group = content.plan, content.shares, group_of(content.restore_id)
        has_holes = self._request.partial or (self._request.append and plan.from_ts is not None)
        target_ids = self.target_ids(plan)
        identities = {
            t.scope: Translation(
                restore_id=content.restore_id,
                at=plan.at,  # of the plan, not of the landing: a fork found in between concerns the plan
                source=plan.source,
                scope=t.scope,
                epoch=t.epoch,
                region="0",
                cluster=target_ids["cluster"],
                target_scope=t.target,
                target_epoch=target_ids["topics"][t.scope],
                target_region="0",
                from_position=0,
                first_position=0,
                to_position=0,
                target_position=0,
                to_ts=IN_PART if has_holes and plan.to_ts is None else plan.to_ts,
            )
            for t in plan.topics
            if self._request.records is None  # rows of a SELECT have no source offsets
        }
        self._record_empty_partitions(plan, identities, open_storage(shares.uri))
        if self._request.repartition:
            self._own_groups = [producer_of(group, t.target, p.region) for t in plan.topics for p in t.parts]
        job = ReplayJob(
            **content.to_read,
            group=group,
            client=self._client,
            target_ids=target_ids["topics"],
            empty=frozenset()
            if self._request.append or self._request.continued
            else frozenset(target_ids["topics"]) - self._registries.of(plan),
            identities=identities,
            begins=plan.begins,
            ends=plan.ends,
            zero_as_one=self._request.zero_as_one,
            by_key=self._request.repartition,
            excluded_offsets=self._registries.excluded_offsets(plan, shares) if plan.files else {},
            one_producer=plan.one_producer,
        )
        return content.run(job, threads=tasks_at_once(_task_bytes(plan, shares.file), _THREADS))

    def _record_empty_partitions(
        self, plan: RestorePlan, identities: Mapping[str, Translation], storage: Storage
    ) -> None:
        """Record the translations of partitions without records: readers start at the target's end, before
        all records to come."""
        filled = {(p.scope, p.region) for t in plan.topics for p in t.parts} | set(plan.until or ())
        empty_spans = [s for s in plan.spans if (s.scope, s.region) not in filled and plan.from_ts is None]
        names = {t.scope: t.target for t in plan.topics}
        spans_by_partition = {(names[s.scope], int(s.region)): s for s in empty_spans}
        ends = {} if self._request.repartition else self._cluster.ends(spans_by_partition)
        parts = []
        for partition, span in spans_by_partition.items():
            end = ends[partition].high if ends else UNKNOWN
            translation = replace(identities[span.scope], region=span.region, target_region=span.region)
            rows = np.array([[span.start_position, span.end_position, span.end_position, end]])
            parts.append((translation, rows))
        put_rows(storage, parts)

    @outlasting_restarts
    def finish(self, plan: RestorePlan) -> Sequence[str]:
        states = self._cluster.describe({t.target for t in plan.topics})
        notes = self._cluster.finish_settings(
            [self._restored_topic(plan, topic) for topic in plan.topics], self._request.settings
        )
        changes: Sequence[str] = ()
        if self._request.settings != "suspended":
            own = self._settings_by_topic
            changes = self._cluster.changed(
                {n: s for n, s in own.items() if s is not None and n in notes}, notes
            )
        # Their records stay until the restore is complete: a run that resumes it suspends the settings again.
        self._finished_topics = states
        hidden = self._cluster.hidden(states)
        return [*self._notes, *chain.from_iterable(notes.values()), *changes, *hidden]

    def unfinished(self) -> str:
        topics = ", ".join(sorted(self._settings_by_topic))
        return topics and (
            f"Retention of {topics} is suspended (retention.ms=-1 and others) until the same command has "
            "finished; set it yourself if you give up the restore."
        )

    def forget(self) -> Sequence[str]:
        for state in self._finished_topics:
            self._settings_before.forget(state)
        return self._cluster.forget_groups([group_of(self._restore_id), *self._own_groups])

    def _restored_topic(self, plan: RestorePlan, topic: TopicPart) -> RestoredTopic:
        """The topic with its final settings. An existing topic keeps its own, unless the request is for the
        backup's."""
        request, own_before = self._request, self._settings_by_topic.get(topic.target)
        keeps_own = own_before is not None and request.settings == "auto" and not request.continued
        settings = TopicSettings(own_before) if own_before is not None and keeps_own else topic.settings
        if topic.scope in self._registries.of(plan):
            # A registry needs the last record of every key, whatever the setting was.
            settings = replace(settings, own={**settings.own, "cleanup.policy": "compact"})
        return RestoredTopic(
            topic.target,
            settings,
            oldest=min((p.min_ts for p in topic.parts), default=None),
            largest=max((p.raw_bytes for p in topic.parts), default=0),
        )


def _metric_name(topic: str) -> str:
    """A topic's name in names of metrics, where brokers do not tell `.` from `_`."""
    return topic.replace(".", "_")


def _task_bytes(plan: RestorePlan, file: PlanFile) -> int:
    """Return the memory that a task of a plan needs at most, by the largest of the files in `file`."""
    batches = file.batches(0, file.rows, ("bytes",))
    file_bytes = max((pc.max(batch["bytes"]).as_py() or 0 for batch in batches if len(batch)), default=0)
    total_bytes = sum(part.raw_bytes for topic in plan.topics for part in topic.parts)
    record_bytes = largest_record(topic.settings.in_force for topic in plan.topics)
    return bytes_to_write(record_bytes, file_bytes, min(QUEUE_BYTES, total_bytes))
