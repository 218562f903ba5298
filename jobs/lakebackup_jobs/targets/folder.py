"""Restore into a folder: records in the layout and format of backups, or the changes of a log as Parquet."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

from lakebackup.errors import Refused
from lakebackup.plan.topics.restore import RestorePlan
from lakebackup.rules.layout import topic_folder
from lakebackup.storage import open_storage
from lakebackup_jobs.targets import RestoredSpan, Target, full_path
from lakebackup_jobs.targets.delta import Content

_SPAN = re.compile(r"\d+-\d+/")
#: The object that records what a span's folder holds. It is written last, so it also shows that the folder is
#: complete.
RANGE = "_range.json"


class FolderTarget(Target):
    """A folder. Of topics, it gets data files under topics/<topic>/partition=<n>/, which must be empty
    before. Of a log, it gets one folder `<from>-<to>` for each restored span; that of an interrupted restore
    is written again."""

    def __init__(self, path: str) -> None:
        self._path = full_path(path)
        self._storage = open_storage(self._path, private=False)
        self.name = f"dir:{self._path}"

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        path = self._occupied_path(plan)
        return {"target_folder": self._storage.uri, "refused_because": f"it holds {path}" if path else None}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        path = None if resumed else self._occupied_path(plan)
        if path:
            raise Refused(
                f"{self._storage.uri} holds {path} already.", hint="Restore into a folder that is empty."
            )

    def _occupied_path(self, plan: RestorePlan) -> str | None:
        for topic in plan.topics:
            for entry in self._storage.list(topic_folder(topic.target)):
                return entry.path
        return None

    def restored_span(self) -> RestoredSpan | None:
        """What the newest span records. Raises Refused when the folder holds anything else."""
        newest_span: RestoredSpan | None = None
        for entry in self._storage.list(""):
            if not _SPAN.match(entry.path):
                raise Refused(
                    f"{self._path} holds {entry.path}, which no restore of a log wrote.",
                    hint="Restore into another folder.",
                )
            if entry.path.endswith(f"/{RANGE}"):
                span = RestoredSpan.read(json.dumps(json.loads(self._storage.get(entry.path))["held"]))
                if span and (newest_span is None or span.to_ts > newest_span.to_ts):
                    newest_span = span
        return newest_span

    def write(self, content: Content[Any]) -> Any:
        """Write the files; of a log, the object that makes the span count comes last."""
        if (goal := content.new_contents) is None:
            return content.write_files(self._path)
        name = f"{goal.start_ts}-{goal.to_ts}"
        summary = content.write_files(f"{self._path}/{name}")
        record = {"held": asdict(goal), "gone": list(content.dropped_ids), "entries": summary["entries"]}
        self._storage.put(f"{name}/{RANGE}", json.dumps(record).encode())
        return summary
