"""How S3 is reached and what objects are written with. docs/s3.md lists the settings. None is a secret.

Who we are is never here: credentials come from the standard chain of AWS's SDK (variables, files of the
profile, role of the machine) in the process that needs them.
"""

from __future__ import annotations

from os import environ
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, Field, ValidationError, model_validator

from lakebackup.errors import UsageProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "LAKEBACKUP_S3__"


MODE = "LAKEBACKUP_STORAGE__MODE"
Mode = Literal["private", "group", "world"]


class StorageOptions(BaseModel):
    """The settings `[storage]`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Mode = Field(default="private", description="who else may read what is stored in a folder")

    def variables(self) -> Mapping[str, str]:
        """What is set, as variables that `modes` of another process reads."""
        return {MODE: self.mode} if self.mode != "private" else {}


def modes() -> tuple[int, int]:
    """The permission bits of stored files and of their folders, by this process's LAKEBACKUP_STORAGE__MODE.

    Raises UsageProblem for a value that is none.
    """
    found = {"private": (0o600, 0o700), "group": (0o640, 0o750), "world": (0o644, 0o755)}
    mode = environ.get(MODE) or "private"
    if mode not in found:
        raise UsageProblem(f"The variable {MODE}: {mode!r} is none of {', '.join(found)}.")
    return found[mode]


class S3Options(BaseModel):
    """The settings `[s3]`. Hashable, and travels to workers."""

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
    def _whole(self) -> Self:
        if self.kms_key_id and self.sse != "aws:kms":
            raise ValueError("kms_key_id needs sse = aws:kms")
        if (self.object_lock_mode is None) != (self.object_lock_days is None):
            raise ValueError("object_lock_mode and object_lock_days go together")
        return self

    @classmethod
    def from_environment(cls) -> Self:
        """The settings of this process with endpoint, region and path_style worked out.

        LAKEBACKUP_S3__* first, then what AWS's SDK knows by its variables and the profile's files. `endpoint`
        stays None for Amazon itself. Raises UsageProblem for a value that is none.
        """
        given = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environ.items()
            if name.startswith(PREFIX) and value
        }
        try:
            options = cls(**given)  # type: ignore[arg-type]
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_url=False)[0]
            variable = PREFIX + str(wrong["loc"][0]).upper() if wrong["loc"] else f"{PREFIX}…"
            reason = wrong["msg"].removeprefix("Value error, ")
            raise UsageProblem(
                f"The variable {variable}: {reason}.",
                hint=f"The settings of [s3] are {', '.join(cls.model_fields)}.",
            ) from None
        return options.resolved()

    def resolved(self) -> Self:
        """With endpoint, region and path_style worked out, see `from_environment`."""
        endpoint, region = _of_aws()
        endpoint = self.endpoint or endpoint
        settled = {
            "endpoint": endpoint.rstrip("/") if endpoint else None,
            # The SDK's own default; servers other than Amazon's mostly ignore it.
            "region": self.region or region or "us-east-1",
            "path_style": bool(endpoint) if self.path_style is None else self.path_style,
        }
        try:
            return type(self).model_validate(self.model_dump() | settled)
        except ValidationError:  # its text would show the URL, which may hold a password
            raise UsageProblem(
                "The endpoint that AWS's variables or files name is not of the form http(s)://host[:port].",
                hint="Leave out credentials, which have variables of their own, and any path.",
            ) from None

    def authorities(self) -> str | None:
        """The file of `ca_bundle`, or what AWS's SDK has in its place; None: those that it trusts by itself.

        Raises UsageProblem for a file that cannot be used.
        """
        file = self.ca_bundle or environ.get("AWS_CA_BUNDLE") or _of_profile("ca_bundle")
        if not file:
            return None
        import ssl

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
        """What is set, as variables that `from_environment` of another process reads. No secrets."""
        values = self.model_dump(mode="json", exclude_defaults=True)
        return {f"{PREFIX}{name.upper()}": str(value) for name, value in values.items()}


def _is_known_to_aws() -> bool:
    """Whether AWS's SDK has settings here. Who keeps backups in a folder shall not wait for it to load."""
    return (
        any(name.startswith("AWS_") and name != "AWS_CA_BUNDLE" for name in environ)
        or Path("~/.aws").expanduser().exists()
    )


def _of_profile(name: str) -> str | None:
    """A setting of AWS's SDK; None where it has none."""
    if not _is_known_to_aws():
        return None
    import botocore.exceptions
    import botocore.session

    try:
        value: str | None = botocore.session.Session().get_config_variable(name)
    except botocore.exceptions.BotoCoreError as error:
        raise UsageProblem(f"The settings of AWS cannot be used: {error}.") from None
    return value


def _of_aws() -> tuple[str | None, str | None]:
    """Endpoint and region as AWS's SDK knows them; UsageProblem where its settings contradict themselves."""
    if not _is_known_to_aws():
        return None, None
    import botocore.exceptions
    import botocore.session
    from botocore.configprovider import ConfiguredEndpointProvider

    session = botocore.session.Session()
    try:
        endpoint = ConfiguredEndpointProvider(
            session.full_config, session.get_scoped_config(), "s3"
        ).provide()
        return endpoint, environ.get("AWS_REGION") or session.get_config_variable("region")
    except botocore.exceptions.BotoCoreError as error:
        raise UsageProblem(f"The settings of AWS cannot be used: {error}.") from None
