"""Restore into a folder: records in the layout and format of backups, or the changes of a log as Parquet."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lakebackup.errors import Refused
from lakebackup.rules.layout import topic_folder
from lakebackup.storage import open_storage
from lakebackup_jobs.targets import Held, Target, full_path

if TYPE_CHECKING:
    from lakebackup.plan.topics.restore import RestorePlan
    from lakebackup_jobs.targets import Content

_SPAN = re.compile(r"\d+-\d+/")
#: Records that a span's folder is whole, and what is in it; written last.
RANGE = "_range.json"


class FolderTarget(Target):
    """Data files under topics/<topic>/partition=<n>/ where there were none; or of a log a folder a span,
    `<from>-<to>`, one behind the other, of which one that was cut off is written again."""

    def __init__(self, path: str) -> None:
        self._path = full_path(path)
        self._storage = open_storage(self._path, private=False)
        self.place = f"dir:{self._path}"

    def describe(self, plan: RestorePlan) -> dict[str, Any]:
        taken = self._taken(plan)
        return {"target_folder": self._storage.uri, "refused_because": f"it holds {taken}" if taken else None}

    def prepare(self, plan: RestorePlan, restore_id: str, *, resumed: bool) -> None:
        taken = None if resumed else self._taken(plan)
        if taken:
            raise Refused(
                f"{self._storage.uri} holds {taken} already.", hint="Restore into a folder that is empty."
            )

    def _taken(self, plan: RestorePlan) -> str | None:
        for topic in plan.topics:
            for found in self._storage.list(topic_folder(topic.target)):
                return found.path
        return None

    def held(self) -> Held | None:
        """What the newest span records. Refused when other things are there."""
        newest: Held | None = None
        for found in self._storage.list(""):
            if not _SPAN.match(found.path):
                raise Refused(
                    f"{self._path} holds {found.path}, which no restore of a log wrote.",
                    hint="Restore into another folder.",
                )
            if found.path.endswith(f"/{RANGE}"):
                held = Held.read(json.dumps(json.loads(self._storage.get(found.path))["held"]))
                if held and (newest is None or held.to_ts > newest.to_ts):
                    newest = held
        return newest

    def write(self, content: Content[Any]) -> Any:
        """The files; of a log the object that makes its span count comes last."""
        if (after := content.after) is None:
            return content.write_files(self._path)
        name = f"{after.start_ts}-{after.to_ts}"
        written = content.write_files(f"{self._path}/{name}")
        record = {"held": asdict(after), "gone": list(content.gone), "entries": written["entries"]}
        self._storage.put(f"{name}/{RANGE}", json.dumps(record).encode())
        return written
