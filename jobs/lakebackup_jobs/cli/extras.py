"""Names the extra of the package that installs a missing library."""

from __future__ import annotations

from lakebackup.errors import EnvironmentProblem

# The first part of a module's name -> the extra in pyproject.toml. No extra has the libraries of the base.
_EXTRAS = {
    **dict.fromkeys(("pyspark", "pandas", "py4j", "grpc", "google"), "spark"),
    **dict.fromkeys(("confluent_kafka", "numba", "llvmlite", "numpy", "fastavro", "cramjam"), "kafka"),
    "yaml": "kafka",
    **dict.fromkeys(("boto3", "botocore", "s3transfer"), "s3"),
    **dict.fromkeys(("fastapi", "uvicorn", "starlette"), "server"),
    **dict.fromkeys(("mcp", "mcp_types", "anyio"), "agents"),
    "pyrage": "encryption",
}
_CONTENTS = {
    "spark": "Spark",
    "kafka": "the client of Kafka with its formats",
    "s3": "the client of S3",
    "server": "the HTTP server",
    "agents": "the server for agents",
    "encryption": "encryption with age",
}


def missing(error: ModuleNotFoundError) -> EnvironmentProblem | None:
    """The error to report when an extra has the missing module.

    Returns None when no extra has it, which is a defect of lakebackup.
    """
    library = (error.name or "").partition(".")[0]
    extra = _EXTRAS.get(library)
    if extra is None:
        return None
    return EnvironmentProblem(
        f"{library} is not installed: this command needs {_CONTENTS[extra]}.",
        hint=f"pip install 'lakebackup[{extra}]', or 'lakebackup[all]' for every command.",
    )
