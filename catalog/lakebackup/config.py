"""Load settings: flags win over LAKEBACKUP_* variables, and these over lakebackup.toml.

docs/configuration.md lists the settings. Properties of Kafka and Spark may be secret. They are in
`Properties`, whose repr masks secrets.
"""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from os import PathLike, environ
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ByteSize,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    TypeAdapter,
    ValidationError,
)
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from lakebackup.config_problems import (
    OLD_NAMES,
    PREFIX,
    check_variables,
    explained,
    rename_old,
    unknown_setting,
    unreadable_variable,
)
from lakebackup.errors import NotFound, UsageProblem
from lakebackup.requests import LOCAL_BELOW
from lakebackup.rules.kafka_properties import translate
from lakebackup.rules.times import parse_duration
from lakebackup.storage.options import S3Options, StorageOptions
from lakebackup.storage.private import require_own

FILE_NAME = "lakebackup.toml"
MASK = "****"
_MIN_RATE = 1024

_SECRET = re.compile(
    r"passw|passphrase$|secret|jaas|token|credential|private|signature|user\.info$|account\.?key|(^|\.)access\.?key"
    r"|(^|\.)ssl\.(key\.pem|keystore\.key)$|[?&]sig$|^sasl\.oauthbearer\.",
    re.IGNORECASE,
)


def is_secret(name: str) -> bool:
    """Whether a Kafka or Spark property with this name counts as secret. In doubt, it does."""
    return _SECRET.search(name) is not None


class Properties(Mapping[str, str]):
    """Client properties by their dotted names. It is read-only; its repr and `masked()` mask secrets."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] = {}) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Properties({self.masked()!r})"

    def masked(self) -> dict[str, str]:
        """A dict with masked secrets, which a screen or a log may show."""
        return {name: MASK if is_secret(name) else value for name, value in sorted(self._values.items())}


def _flatten(table: Any, prefix: str = "") -> dict[str, str]:
    """Properties from nested tables: TOML reads the property `a.b = 1` as a table in a table."""
    if isinstance(table, Properties):
        return dict(table)
    if not isinstance(table, Mapping):
        raise ValueError("a table of properties is needed")
    flat: dict[str, str] = {}
    for key, value in table.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{name}.")
        elif isinstance(value, bool):
            flat[name] = str(value).lower()
        elif isinstance(value, str | int | float):
            flat[name] = str(value)
        else:
            raise ValueError(f"property {name} must be text, a number or true/false")
    return flat


def _seconds(value: Any) -> Any:
    if isinstance(value, str) and not value.replace(".", "", 1).isdigit():
        try:
            return parse_duration(value) / 1000
        except UsageProblem as problem:
            raise ValueError(f"{problem.message} {problem.hint}") from None
    return value


def _roll_seconds(value: Any) -> Any:
    return 0.0 if value == "never" else _seconds(value)


def _rate(value: Any) -> Any:
    """Parse a rate such as 50MB/s to bytes per second."""
    if value is None:
        return None
    text = value.strip().removesuffix("/s") if isinstance(value, str) else value
    try:
        rate = TypeAdapter(ByteSize).validate_python(text)
    except ValidationError:
        raise ValueError(f"{value!r} is not a number of bytes a second; write 50MB/s") from None
    if rate < _MIN_RATE:
        raise ValueError(f"{value!r} is slower than 1KiB/s; write 50MB/s, or nothing for no limit")
    return rate


PropertyTable = Annotated[
    Properties,
    BeforeValidator(lambda table: Properties(_flatten(table))),
    PlainSerializer(lambda properties: properties.masked()),
]


KafkaProperties = Annotated[
    PropertyTable, AfterValidator(lambda properties: Properties(translate(properties)))
]


def _expand_home(path: str | None) -> str | None:
    """Replace `~` at the beginning of a path by the home folder. No shell does so for a path in a file."""
    return str(Path(path).expanduser()) if path and path.startswith("~") else path


# A path, or a URI.
Location = Annotated[str | None, AfterValidator(_expand_home)]


class LogOptions(BaseModel):
    """The settings `[log]` of change feeds."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    keys_file: Location = Field(default=None, description="file of the keys that encrypt log files")
    token_file: Location = Field(default=None, description="file of the token that `serve http` asks for")
    scratch: Location = Field(default=None, description="folder of temporary files, on each machine")
    tries: int = Field(default=6, description="how often a job tries what failed before it pauses", ge=1)


def _web_url(value: str | None) -> str | None:
    if value is not None and urlsplit(value).scheme not in ("http", "https"):
        raise ValueError("it must begin with https:// or http://")
    return value


def _without_path(url: str | None) -> str | None:
    """Mask the path of a webhook's URL, which often holds its secret."""
    return url and f"{urlsplit(url).scheme}://{urlsplit(url).hostname}/{MASK}"


def _require_command(command: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    words = shlex.split(command) if isinstance(command, str) else command
    if words is not None and not words:
        raise ValueError("a command is needed")
    return command


def _split_words(command: Any) -> Any:
    return shlex.split(command) if isinstance(command, str) else command


Command = Annotated[str | tuple[str, ...] | None, AfterValidator(_require_command)]


class NotifyOptions(BaseModel):
    """The settings `[notify]`: who gets a message when a job ends."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    on_failure: Command = Field(default=None, description="command that is run when a job failed")
    on_success: Command = Field(default=None, description="command that is run when a job succeeded")
    webhook: Annotated[str | None, AfterValidator(_web_url), PlainSerializer(_without_path)] = Field(
        default=None, description="URL that events are posted to"
    )
    webhook_on: Literal["failure", "always"] = Field(default="failure", description="of which jobs")
    key_file: Location = Field(default=None, description="file of the key that signs what is posted")


Passphrase = Annotated[SecretStr | None, Field(min_length=1), PlainSerializer(lambda text: text and MASK)]


class SigningOptions(BaseModel):
    """The settings `[signing]`: the key that signs backups and evidence, this machine's name in evidence, and
    the public keys that are trusted."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    key_file: Location = Field(
        default=None, description="file of the private key that signs backups and evidence"
    )
    passphrase: Passphrase = Field(default=None, description="passphrase of the key")
    passphrase_file: Location = Field(default=None, description="file of the passphrase, instead of it")
    passphrase_command: Command = Field(
        default=None, description="command that prints the passphrase, instead of it"
    )
    host: str | None = Field(
        default=None, description="name of this machine in evidence; its host name when absent"
    )
    evidence_folder: Location = Field(
        default=None, description="folder for the statements of drills that `due --run` runs"
    )
    public_keys: tuple[str, ...] = Field(
        default=(), description="files of the public keys whose signatures count"
    )
    retired_keys: tuple[str, ...] = Field(
        default=(), description="files of public keys that counted once and do not count any more"
    )


class EncryptionOptions(BaseModel):
    """The settings `[encryption]`: who can read new backups, and with which identity old ones are read."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    recipients: tuple[str, ...] = Field(
        default=(), description="who can read new backups: age1…, ssh-ed25519 …, aws-kms:ARN"
    )
    recipients_file: Location = Field(default=None, description="file of more recipients, one a line")
    identity_file: Location = Field(default=None, description="file of the identity that reads backups")
    passphrase: Passphrase = Field(default=None, description="passphrase of the identity")
    passphrase_file: Location = Field(default=None, description="file of the passphrase, instead of it")
    passphrase_command: Command = Field(
        default=None, description="command that prints the passphrase, instead of it"
    )
    metadata_key_file: Location = Field(
        default=None, description="file of the key that encrypts the metadata of a new repository"
    )

    @property
    def has_recipients(self) -> bool:
        """Whether new backups are encrypted for recipients. Reads no file."""
        return bool(self.recipients) or self.recipients_file is not None


class ApprovedOptions(BaseModel):
    """The settings `[approved]`: what rows of a catalog may make this machine do. A person approves all else
    (`lakebackup approve`)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    repos: tuple[str, ...] = Field(
        default=(), description="URIs of other repositories that backups may be read from"
    )
    delete_in: tuple[str, ...] = Field(
        default=(), description="URIs of other repositories in which a prune may delete"
    )
    servers: tuple[str, ...] = Field(
        default=(), description="bootstrap servers that log tasks may read from, beside those of [kafka]"
    )
    commands: Mapping[str, Annotated[tuple[str, ...], BeforeValidator(_split_words), Field(min_length=1)]] = (
        Field(default={}, description="source -> what a due run backs up, as `policy set --command` has it")
    )


def _require_name(value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise ValueError("it is empty: name a source, or leave it out")
    return value


class Settings(BaseModel):
    """All settings, which need not be given with each command. Create them with `load`."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        hide_input_in_errors=True,
        validate_default=False,
    )

    repo: Location = Field(
        None, description="the repository of the backups: a folder, a file:// URI or s3://bucket/prefix"
    )
    catalog: Location = Field(None, description="where the catalog is, when not <repo>/catalog")
    source: Annotated[str | None, AfterValidator(_require_name)] = Field(
        None,
        description="the cluster's name in the catalog; its cluster id by default. "
        "`status` and `due` cover every source all the same",
    )
    kafka: KafkaProperties = Field(
        Properties(), description="librdkafka properties: bootstrap.servers, security.protocol, …"
    )
    codec: Literal["null", "deflate", "snappy", "zstandard"] = Field(
        "zstandard", description="codec of data files"
    )
    compression_level: int | None = Field(
        None, description="compression level; the codec's own default when absent", ge=-7, le=22
    )
    mode: Literal["auto", "full", "incr-diff", "incr-accu"] = Field(
        "auto", description="what a backup of topics takes: auto, full, incr-diff, incr-accu"
    )
    level: int | None = Field(
        None, description="level of an incremental backup, 1 when absent", ge=0, le=1_000_000
    )
    target_size: ByteSize = Field(
        ByteSize(128 * 1024 * 1024), description="a data file is closed at this size, such as 128MiB", ge=1024
    )
    generation_growth: float = Field(
        2.0,
        description="a compacted topic is read from its start again when its backups hold this many times "
        "what they held when that was last done",
        ge=1,
    )
    groups: Literal["all", "none"] = Field(
        "all",
        description="whether a backup of topics saves consumer groups too, and the topic of their offsets",
    )
    schema_topics: tuple[str, ...] = Field(
        ("_schemas",), description="topics of schema registries: their records become rows of `schemas`"
    )
    roll: Annotated[float | None, BeforeValidator(_roll_seconds)] = Field(
        None,
        description="a data file is closed when its records span this long: 6h, never; a tenth of the "
        "topic's own retention when absent",
        ge=0,
    )
    always: tuple[str, ...] = Field(
        ("CURRENT", "MANIFEST-*"),
        description="files of a snapshot that every backup copies, whatever they look like, by their names",
    )
    trust_mtime: bool = Field(
        False,
        description="whether a file of a snapshot that has its size and time of last change is taken for "
        "unchanged, whatever its inode and ctime are: for copies, and file systems that renumber",
    )
    snapshot_codec: Literal["auto", "zstd", "none"] = Field(
        "auto",
        description="how files of a snapshot are stored: zstd, none (as they are), or auto: zstd for those "
        "that become smaller",
    )
    pack_below: ByteSize = Field(
        ByteSize(1024 * 1024),
        description="many files of a snapshot smaller than this are stored as few objects; 0: never",
    )
    queue_tid_header: str = Field("tid", description="of an engine's messages: the header that holds the tid")
    queue_tid_format: Literal["text", "int64"] = Field(
        "text", description="text: a tid is decimal digits; int64: 8 bytes, most significant first"
    )
    queue_transaction_header: str = Field(
        "transaction", description="the header that names a message's transaction"
    )
    queue_kind_header: str = Field(
        "kind", description="the header that says begin, write, commit or rollback; without it a write"
    )
    isolation: Literal["read_committed", "read_uncommitted"] = Field(
        "read_committed", description="whether records of open and aborted transactions are left out"
    )
    runner: Literal["auto", "spark", "local"] = Field(
        "auto",
        description="what runs the tasks of a job: spark, local (threads of the command's own process), or "
        "auto: local for little data",
    )
    local_below: ByteSize = Field(
        ByteSize(LOCAL_BELOW),
        description="up to this size is little data: of the records that a backup reads, of the stored files "
        "that a restore or a check reads; files of a snapshot count a quarter, when restored a 64th",
    )
    bandwidth: Annotated[ByteSize | None, BeforeValidator(_rate)] = Field(
        None,
        description="bytes a second that all tasks of a backup, a restore or a check together read or write: "
        "50MB/s; no limit when absent",
    )
    master: str | None = Field(None, description="Spark master, when not this machine: spark://host:7077")
    remote: str | None = Field(None, description="a running Spark Connect server: sc://host:15002")
    spark: PropertyTable = Field(
        Properties(), description="Spark properties for the session: spark.driver.memory, …"
    )
    storage: StorageOptions = Field(
        StorageOptions(),
        description="folders that hold backups: mode, who else may read them (private, group, world)",
    )
    s3: S3Options = Field(
        S3Options(), description="how S3 is reached and what objects are written with: endpoint, sse, …"
    )
    log: LogOptions = Field(
        LogOptions(),
        description="change feeds: keys_file, of the keys that encrypt log files; token_file; scratch; tries",
    )
    notify: NotifyOptions = Field(
        NotifyOptions(),
        description="who hears how a job ended: on_failure, on_success; webhook, webhook_on, key_file",
    )
    signing: SigningOptions = Field(
        SigningOptions(),
        description="who signs backups and evidence: key_file, passphrase, passphrase_file, "
        "passphrase_command, host, evidence_folder; whose signatures count: public_keys, retired_keys",
    )
    encryption: EncryptionOptions = Field(
        EncryptionOptions(),
        description="who can read backups: recipients, recipients_file, "
        "identity_file, passphrase, passphrase_file, passphrase_command, metadata_key_file",
    )
    approved: ApprovedOptions = Field(
        ApprovedOptions(),
        description="what a catalog may have this machine do: repos, delete_in, servers, commands",
    )
    lease_ttl: Annotated[float, BeforeValidator(_seconds)] = Field(
        60.0, description="a run that is silent this long has lost its source: 60s, 2m", gt=0
    )

    def masked(self) -> dict[str, Any]:
        """All settings in types of JSON, with masked secrets."""
        return self.model_dump(mode="json")


def load(flags: Mapping[str, Any], config: str | PathLike[str] | None = None) -> Settings:
    """Load the settings in force. `flags` win if they are not None; `config` names a TOML file.

    Raises UsageProblem for a bad file, key or value. The message names it, but shows no secret's value.
    Raises NotFound if the named file does not exist.
    """
    config_file = config or environ.get("LAKEBACKUP_CONFIG")
    path = Path(config_file or FILE_NAME)
    if config_file and not path.is_file():
        missing_text = f"There is no configuration file {path}"
        problem_text = f"{path} is a folder, not a configuration file" if path.is_dir() else missing_text
        raise NotFound(f"{problem_text}.", hint="Check --config or LAKEBACKUP_CONFIG.")
    if not config_file:
        require_own(path, "The configuration file of this folder")
    table = _read_toml(path) if path.is_file() else {}
    set_flags = {name: value for name, value in flags.items() if value is not None}
    try:
        return Settings(**_merged(table, _from_environment(), set_flags))
    except ValidationError as error:
        raise explained(error, set_flags, table, path, Settings.model_fields) from None
    except ValueError as error:
        raise unreadable_variable(error) from None


def _from_environment() -> dict[str, Any]:
    """The settings by variables. LAKEBACKUP_KAFKA__SASL_PASSWORD sets the property `sasl.password`: names of
    client properties have no underscores."""
    if not any(name.upper().startswith(PREFIX) for name in environ):
        return {}
    check_variables(Settings.model_fields)

    class FromEnvironment(BaseSettings, Settings):
        model_config = SettingsConfigDict(env_prefix=PREFIX, env_nested_delimiter="__")

    values = EnvSettingsSource(FromEnvironment)()
    for old, new in OLD_NAMES.items():
        if f"{PREFIX}{old.upper()}" in environ:
            values.setdefault(new, environ[f"{PREFIX}{old.upper()}"])
    for name in values.keys() & {"kafka", "spark"}:
        values[name] = {key.replace("_", "."): value for key, value in _flatten(values[name]).items()}
    return values


def _merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge the settings of all layers. The last layer wins. Tables are merged entry by entry."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            lower_value = merged.get(name)
            both_tables = isinstance(lower_value, Mapping) and isinstance(value, Mapping)
            merged[name] = {**merged[name], **value} if both_tables else value
    return merged


_PROPERTIES_HINT = "Write each property once, on a line of its own: security.protocol=SASL_SSL"


def read_properties(path: str | PathLike[str]) -> dict[str, str]:
    """Read a `key=value` file in the format of Kafka's own tools and kcat. Raises NotFound, UsageProblem."""
    # Interpolation would change '%' in passwords. configparser needs a section, which such files do not have.
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), default_section="")
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    try:
        with Path(path).open(encoding="utf-8") as lines:
            parser.read_file(chain(["[properties]\n"], lines))
    except OSError as error:
        raise NotFound(
            f"The properties file {path} cannot be read: {error.strerror}.", hint="Check --kafka-config."
        ) from None
    except configparser.DuplicateOptionError as error:
        line = (error.lineno or 1) - 1
        raise UsageProblem(
            f"{path}, line {line}: {error.option} is there twice.", hint=_PROPERTIES_HINT
        ) from None
    except configparser.ParsingError as error:
        line = error.errors[0][0] - 1
        raise UsageProblem(
            f"{path}, line {line} is not of the form key=value.", hint=_PROPERTIES_HINT
        ) from None
    except (configparser.Error, UnicodeDecodeError):
        raise UsageProblem(f"{path} is not a file of key=value lines.", hint=_PROPERTIES_HINT) from None
    if parser.sections() != ["properties"]:
        raise UsageProblem(f"{path} has [sections]; a properties file has none.", hint=_PROPERTIES_HINT)
    return dict(parser["properties"])


def parse_properties(pairs: Sequence[str], option: str = "-X") -> dict[str, str]:
    """Parse `key=value` pairs of the command line. Raises UsageProblem, also for a secret, which other users
    could see there."""
    properties: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name = name.strip()
        if not equals or not name:
            raise UsageProblem(
                f"{option} {name!r} is not of the form key=value.",
                hint=f"Example: {option} "
                f"{'client.id=nightly' if option == '-X' else 'spark.driver.memory=4g'}",
            )
        if is_secret(name):
            variable = f"LAKEBACKUP_KAFKA__{name.upper().replace('.', '_')}"
            raise UsageProblem(
                f"{name} is a secret; a command line is visible to everyone on the machine.",
                hint=f"Set {variable}, or put it into lakebackup.toml or a file for --kafka-config."
                if option == "-X"
                else "Put it into lakebackup.toml.",
            )
        properties[name] = value.strip()
    return properties


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(
            f"{path} is not valid TOML: {error}.",
            hint='Text is in quotes (repo = "/backups"), and a table begins with its name ([kafka]).',
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageProblem(f"{path} cannot be read: {reason}.", hint="Check --config.") from None
    rename_old(table)
    for key in table:
        if key not in Settings.model_fields:
            raise unknown_setting(key, path, Settings.model_fields)
    for name in ("kafka", "spark"):
        if isinstance(table.get(name), dict):
            try:
                table[name] = _flatten(table[name])
            except ValueError as error:
                raise UsageProblem(f"{path}, [{name}]: {error}.", hint=f"Correct {path}.") from None
    return table
