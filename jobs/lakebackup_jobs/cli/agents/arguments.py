"""The arguments of the tools for agents. Their JSON schemas tell an agent what it may ask."""

from __future__ import annotations

from pydantic import BaseModel, Field

_TIME = "such as 2026-11-21T14:05Z, -2h, yesterday 14:05; without a zone it is UTC"


class Bounded(BaseModel, extra="forbid"):
    """The bounds of an answer, which a question may make narrower."""

    rows: int | None = Field(None, ge=1, description="the most rows of the answer")
    bytes: int | None = Field(None, ge=1, description="the most bytes of these rows, as JSON")
    seconds: float | None = Field(None, gt=0, description="stop the query after this time")


class Question(Bounded):
    """A question about the catalog as it is, or as it was."""

    as_of: str | None = Field(None, description=f"read the catalog as it was at this time: {_TIME}")


class SourceQuestion(Question):
    """A question about one source, or about all."""

    source: str | None = Field(None, description="the name of a source; without it, all sources")


class CoverageQuestion(SourceQuestion):
    """A question about the times to which topics can be restored."""

    topic: str | None = Field(None, description="the name of a topic; without it, all topics")


class SelectQuestion(Question):
    """A person's SELECT."""

    sql: str = Field(description="one SELECT in Spark's dialect; SHOW TABLES and DESCRIBE work too")


class Restore(Bounded):
    """A restore of topics."""

    topics: list[str] = Field(min_length=1, description="names of topics")
    source: str | None = Field(None, description="the source of the topics, where there are several")
    to_time: str | None = Field(None, description=f"restore up to and including this time: {_TIME}")
    from_time: str | None = Field(None, description="restore only records after this time")


class RestoreQuestion(Restore, Question):
    """What a restore of topics would read."""


class RestorePlanRequest(Restore):
    """A restore of topics whose plan is saved for a person."""

    to: str = Field(description="where a person restores to: kafka://HOST:PORT, delta:PATH, dir:PATH")
    maps: dict[str, str] = Field({}, description="topic -> its new name")
