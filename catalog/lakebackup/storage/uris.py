"""The URIs of storages, in the one form that `Storage.uri` has. Nothing is opened."""

from __future__ import annotations

from pathlib import Path

from lakebackup.errors import UsageProblem

_NO_STORAGE = ("/proc", "/sys", "/dev")


def normalized(uri: str) -> str:
    """The URI that the storage at `uri` has. Raises UsageProblem as `open_storage` does."""
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return folder_uri(Path(uri).resolve())
    if scheme == "file":
        return folder_uri(folder_of(rest).resolve())
    if scheme in ("s3", "s3a"):
        return s3_uri(*split_s3(uri))
    raise unknown_scheme(scheme)


def folder_uri(folder: Path) -> str:
    """`file://` and an absolute path, unescaped, as Hadoop's file systems take it."""
    return f"file://{folder}"


def folder_of(rest: str) -> Path:
    """The folder of a URI, of which `rest` is what follows `file://`: a host before the path is left out."""
    return Path(rest if rest.startswith("/") else f"/{rest.partition('/')[2]}")


def s3_uri(bucket: str, prefix: str) -> str:
    """`s3://` with bucket and prefix."""
    return f"s3://{bucket}/{prefix}".rstrip("/")


def split_s3(uri: str) -> tuple[str, str]:
    """The bucket of a URI, and its prefix with a slash at its end (or nothing). Raises UsageProblem."""
    scheme, _, rest = uri.partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if bucket.startswith("arn:"):
        raise UsageProblem(
            "An ARN is not the name of a bucket.",
            hint="Give an access point by its alias, which ends in -s3alias: s3://ALIAS/prefix. "
            "`aws s3control get-access-point` prints it.",
        )
    if "@" in bucket or ":" in bucket:
        raise UsageProblem(
            f"{scheme}://… holds more than a bucket's name before its path.",
            hint="Credentials come from AWS's own variables and files: AWS_ACCESS_KEY_ID, AWS_PROFILE.",
        )
    if not bucket or any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise UsageProblem(
            f"{uri!r} is not of the form s3://bucket/prefix.", hint="Example: s3://my-bucket/backups"
        )
    return bucket, f"{prefix}/" if prefix else ""


def require_folder(flag: str, uri: str) -> None:
    """UsageProblem where a flag's URI is a path that can be no folder of backups: a file, something below a
    file, or a part of the kernel's own file systems. A folder need not exist yet."""
    scheme, separator, rest = uri.partition("://")
    if separator and scheme in ("s3", "s3a"):
        return
    if separator and scheme != "file":  # the rest of the URI may hold a secret
        problem = unknown_scheme(scheme)
        raise UsageProblem(f"{flag}: {problem.message}", hint=problem.hint)
    folder = folder_of(rest) if separator else Path(uri)
    hint = "Give a folder, or s3://bucket/prefix."
    path = folder.absolute()
    top = next((top for top in _NO_STORAGE if path.is_relative_to(top)), None)
    if top and not path.is_relative_to("/dev/shm"):  # noqa: S108 - memory, which is a file system
        raise UsageProblem(f"{flag} {uri!r} is in {top}, where no files can be kept.", hint=hint)
    file = next((each for each in (path, *path.parents) if each.exists()), path)
    if not file.is_dir():
        what = "is a file, not a folder" if file == path else f"is below {file}, which is a file"
        raise UsageProblem(f"{flag} {uri!r} {what}.", hint=hint)


def unknown_scheme(scheme: str) -> UsageProblem:
    """The error for a URI that is none of a storage. The rest of it may hold a secret."""
    return UsageProblem(
        f"{scheme}:// is not a storage for backups.",
        hint="Give a folder, a file:// URI, or s3://bucket/prefix.",
    )
