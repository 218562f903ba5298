"""Parse URIs of storages into the normal form of `Storage.uri`, without opening the storage."""

from __future__ import annotations

from pathlib import Path

from lakebackup.errors import UsageProblem

_KERNEL_FOLDERS = ("/proc", "/sys", "/dev")


def normalized(uri: str) -> str:
    """The `Storage.uri` of the storage at `uri`. Raises UsageProblem as `open_storage` does."""
    scheme, separator, path = uri.partition("://")
    if not separator:
        return folder_uri(Path(uri).resolve())
    if scheme == "file":
        return folder_uri(folder_of(path).resolve())
    if scheme in ("s3", "s3a"):
        return s3_uri(*split_s3(uri))
    raise unknown_scheme(scheme)


def folder_uri(folder: Path) -> str:
    """`file://` and an absolute path, unescaped, in the form for Hadoop's file systems."""
    return f"file://{folder}"


def folder_of(uri_path: str) -> Path:
    """The folder of a file URI. `uri_path` is the part after `file://`; a host before the path is ignored."""
    return Path(uri_path if uri_path.startswith("/") else f"/{uri_path.partition('/')[2]}")


def s3_uri(bucket: str, prefix: str) -> str:
    """The URI `s3://bucket/prefix`."""
    return f"s3://{bucket}/{prefix}".rstrip("/")


def split_s3(uri: str) -> tuple[str, str]:
    """Split a URI into its bucket and its prefix, which ends in `/` or is empty. Raises UsageProblem."""
    scheme, _, location = uri.partition("://")
    bucket, _, prefix = location.partition("/")
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
    """Raise UsageProblem if a flag's URI cannot be a folder of backups.

    It cannot be a file, a path below a file, or in one of the kernel's file systems. A folder need not exist.
    """
    scheme, separator, uri_path = uri.partition("://")
    if separator and scheme in ("s3", "s3a"):
        return
    if separator and scheme != "file":  # the rest of the URI may hold a secret
        problem = unknown_scheme(scheme)
        raise UsageProblem(f"{flag}: {problem.message}", hint=problem.hint)
    folder = folder_of(uri_path) if separator else Path(uri)
    hint = "Give a folder, or s3://bucket/prefix."
    path = folder.absolute()
    kernel_folder = next(
        (kernel_folder for kernel_folder in _KERNEL_FOLDERS if path.is_relative_to(kernel_folder)), None
    )
    if kernel_folder and not path.is_relative_to("/dev/shm"):  # noqa: S108 - memory, which is a file system
        raise UsageProblem(f"{flag} {uri!r} is in {kernel_folder}, where no files can be kept.", hint=hint)
    nearest = next((parent for parent in (path, *path.parents) if parent.exists()), path)
    if not nearest.is_dir():
        problem_text = (
            "is a file, not a folder" if nearest == path else f"is below {nearest}, which is a file"
        )
        raise UsageProblem(f"{flag} {uri!r} {problem_text}.", hint=hint)


def unknown_scheme(scheme: str) -> UsageProblem:
    """The error for a URI with an unknown scheme. It shows only the scheme: the rest may hold a secret."""
    return UsageProblem(
        f"{scheme}:// is not a storage for backups.",
        hint="Give a folder, a file:// URI, or s3://bucket/prefix.",
    )
