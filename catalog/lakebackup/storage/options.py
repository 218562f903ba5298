"""The settings of folders and of S3: `[storage]` and `[s3]`. docs/s3.md lists those of S3. None is a secret.

Credentials are not among them. They come from the standard chain of AWS's SDK (variables, files of the
profile, role of the machine) in the process that needs them.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from os import environ
from pathlib import Path
from typing import Literal, Self

import botocore.exceptions
import botocore.session
from botocore.configprovider import ConfiguredEndpointProvider
from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, model_validator

from lakebackup.errors import UsageProblem

PREFIX = "LAKEBACKUP_S3__"


MODE = "LAKEBACKUP_STORAGE__MODE"
Mode = Literal["private", "group", "world"]


class StorageOptions(BaseModel):
    """The settings `[storage]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode = Field(default="private", description="who else may read what is stored in a folder")

    def variables(self) -> Mapping[str, str]:
        """The settings as environment variables, which `modes` reads in another process."""
        return {MODE: self.mode} if self.mode != "private" else {}


def modes() -> tuple[int, int]:
    """The permission bits of stored files and of their folders, by this process's LAKEBACKUP_STORAGE__MODE.

    Raises UsageProblem for an invalid value.
    """
    bits_by_mode = {"private": (0o600, 0o700), "group": (0o640, 0o750), "world": (0o644, 0o755)}
    mode = environ.get(MODE) or "private"
    if mode not in bits_by_mode:
        raise UsageProblem(f"The variable {MODE}: {mode!r} is none of {', '.join(bits_by_mode)}.")
    return bits_by_mode[mode]


class S3Options(BaseModel):
    """The settings `[s3]`. It is hashable, and pickled to Spark's workers."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    endpoint: str | None = Field(
        default=None,
        description="URL of a server that is not Amazon's; AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or the "
        "profile's when absent",
        pattern=r"^https?://[^/@\s]+/?$",
    )
    region: str | None = Field(
        default=None,
        description="region of the bucket; AWS_REGION, AWS_DEFAULT_REGION or the profile's when absent",
    )
    path_style: bool | None = Field(
        default=None,
        description="the bucket is part of the path, not of the host's name; true when absent and there is "
        "an endpoint",
    )
    ca_bundle: str | None = Field(
        default=None,
        description="PEM file of the authorities that issue the server's certificate; AWS_CA_BUNDLE or the "
        "profile's when absent",
    )
    part_size: ByteSize = Field(
        default=ByteSize(16 * 1024 * 1024),
        description="objects larger than this are sent in parts of this size; four parts are held in memory",
        ge=5 * 1024 * 1024,
        le=1024**3,
    )
    sse: Literal["AES256", "aws:kms"] | None = Field(
        default=None, description="encryption on the server; the bucket's own default when absent"
    )
    kms_key_id: str | None = Field(
        default=None, description="key of sse = aws:kms; the account's when absent"
    )
    requester_pays: bool = Field(
        default=False, description="this account pays for requests, in a bucket whose owner does not"
    )
    object_lock_mode: Literal["GOVERNANCE", "COMPLIANCE"] | None = Field(
        default=None,
        description="locks the versions of data files and sidecars, in a bucket that has Object Lock",
    )
    object_lock_days: int | None = Field(default=None, description="how long a lock holds", ge=1, le=36_500)
    max_bandwidth: ByteSize | None = Field(
        default=None,
        description="most bytes a second that one process sends: 50MiB; no limit when absent",
        ge=65_536,
    )
    connect_timeout: float = Field(default=10.0, description="seconds until a connection must stand", gt=0)
    read_timeout: float = Field(default=60.0, description="seconds a server may be silent", gt=0)
    max_attempts: int = Field(default=6, description="tries of a request, the first among them", ge=1, le=20)

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        if self.kms_key_id and self.sse != "aws:kms":
            raise ValueError("kms_key_id needs sse = aws:kms")
        if (self.object_lock_mode is None) != (self.object_lock_days is None):
            raise ValueError("object_lock_mode and object_lock_days go together")
        return self

    @classmethod
    def from_environment(cls) -> Self:
        """The settings of this process, with endpoint, region and path_style filled in.

        LAKEBACKUP_S3__* comes first, then the variables and profile files of AWS's SDK. `endpoint` stays None
        for Amazon itself. Raises UsageProblem for an invalid value.
        """
        values = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environ.items()
            if name.startswith(PREFIX) and value
        }
        try:
            options = cls(**values)  # type: ignore[arg-type]
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]
            variable = PREFIX + str(problem["loc"][0]).upper() if problem["loc"] else f"{PREFIX}…"
            reason = problem["msg"].removeprefix("Value error, ")
            raise UsageProblem(
                f"The variable {variable}: {reason}.",
                hint=f"The settings of [s3] are {', '.join(cls.model_fields)}.",
            ) from None
        return options.resolved()

    def resolved(self) -> Self:
        """A copy with endpoint, region and path_style filled in, as by `from_environment`."""
        endpoint, region = _endpoint_and_region()
        endpoint = self.endpoint or endpoint
        resolved_values = {
            "endpoint": endpoint.rstrip("/") if endpoint else None,
            # us-east-1 is the SDK's own default. Servers other than Amazon's mostly ignore the region.
            "region": self.region or region or "us-east-1",
            "path_style": bool(endpoint) if self.path_style is None else self.path_style,
        }
        try:
            return type(self).model_validate(self.model_dump() | resolved_values)
        except ValidationError:  # its text would show the URL, which may hold a password
            raise UsageProblem(
                "The endpoint that AWS's variables or files name is not of the form http(s)://host[:port].",
                hint="Leave out credentials, which have variables of their own, and any path.",
            ) from None

    def authorities(self) -> str | None:
        """The path of the CA file: `ca_bundle`, or that of AWS's SDK. None: the SDK's built-in authorities.

        Raises UsageProblem for a file that cannot be used.
        """
        file = self.ca_bundle or environ.get("AWS_CA_BUNDLE") or _profile_setting("ca_bundle")
        if not file:
            return None

        path = str(Path(file).expanduser())
        try:
            ssl.create_default_context(cafile=path)
        except OSError as error:
            reason = "it holds no certificates in PEM" if isinstance(error, ssl.SSLError) else error.strerror
            raise UsageProblem(
                f"The file of authorities {path} cannot be used: {reason}.",
                hint="Check ca_bundle of [s3], AWS_CA_BUNDLE, or ca_bundle of the profile.",
            ) from None
        return path

    def variables(self) -> Mapping[str, str]:
        """The settings as environment variables, which `from_environment` reads in another process."""
        values = self.model_dump(mode="json", exclude_defaults=True)
        return {f"{PREFIX}{name.upper()}": str(value) for name, value in values.items()}


def _is_known_to_aws() -> bool:
    """Whether AWS's SDK has settings here. If not, the SDK need not be loaded, which takes time."""
    return (
        any(name.startswith("AWS_") and name != "AWS_CA_BUNDLE" for name in environ)
        or Path("~/.aws").expanduser().exists()
    )


def _profile_setting(name: str) -> str | None:
    """A setting of AWS's SDK, or None if it is not set."""
    if not _is_known_to_aws():
        return None
    try:
        value: str | None = botocore.session.Session().get_config_variable(name)
    except botocore.exceptions.BotoCoreError as error:
        raise UsageProblem(f"The settings of AWS cannot be used: {error}.") from None
    return value


def _endpoint_and_region() -> tuple[str | None, str | None]:
    """Endpoint and region by the settings of AWS's SDK. Raises UsageProblem if these cannot be used."""
    if not _is_known_to_aws():
        return None, None
    session = botocore.session.Session()
    try:
        endpoint = ConfiguredEndpointProvider(
            session.full_config, session.get_scoped_config(), "s3"
        ).provide()
        return endpoint, environ.get("AWS_REGION") or session.get_config_variable("region")
    except botocore.exceptions.BotoCoreError as error:
        raise UsageProblem(f"The settings of AWS cannot be used: {error}.") from None
