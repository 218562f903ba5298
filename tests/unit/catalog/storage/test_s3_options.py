from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path

import pytest
from pydantic import ByteSize

from lakebackup.errors import EnvironmentProblem, UsageProblem
from lakebackup.storage import open_storage
from lakebackup.storage.options import PREFIX, S3Options

ROOT = Path(__file__).parents[4]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Clears the environment's settings of S3. Returns the folder of AWS's configuration files."""
    for name in [name for name in os.environ if name.startswith(("AWS_", PREFIX))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


AWS = {"AWS_ENDPOINT_URL": "http://everything:1", "AWS_DEFAULT_REGION": "eu-west-1"}
AWS_S3 = {**AWS, "AWS_ENDPOINT_URL_S3": "https://s3.example:2/", "AWS_REGION": "eu-west-2"}
OWN = {f"{PREFIX}ENDPOINT": "http://own:2", f"{PREFIX}REGION": "own", f"{PREFIX}PATH_STYLE": "false"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({}, (None, "us-east-1", False), id="Amazon itself"),
        pytest.param(AWS, ("http://everything:1", "eu-west-1", True), id="the variables of AWS"),
        pytest.param(AWS_S3, ("https://s3.example:2", "eu-west-2", True), id="those for S3 first"),
        pytest.param(
            {**AWS_S3, **OWN, f"{PREFIX}SSE": ""}, ("http://own:2", "own", False), id="our own first"
        ),
    ],
)
def test_the_endpoint_comes_from_variables(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: tuple[str | None, str, bool]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    options = S3Options.from_environment()
    assert (options.endpoint, options.region, options.path_style, options.sse) == (*expected, None)


def test_settings_come_from_the_files_of_aws(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "config").write_text(
        "[profile mine]\nregion = eu-north-1\nservices = own\n\n"
        "[services own]\ns3 =\n  endpoint_url = http://profile:3\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "mine")
    options = S3Options.from_environment()
    assert (options.endpoint, options.region) == ("http://profile:3", "eu-north-1")


def test_another_process_reads_the_same_options(monkeypatch: pytest.MonkeyPatch) -> None:
    options = S3Options(
        endpoint="http://own:2",
        part_size="64MiB",  # type: ignore[arg-type]
        sse="aws:kms",
        kms_key_id="key",
        object_lock_mode="GOVERNANCE",
        object_lock_days=3,
        max_bandwidth="1MiB",  # type: ignore[arg-type]
        read_timeout=2.5,
    ).resolved()
    for name, value in options.variables().items():
        monkeypatch.setenv(name, value)
    assert S3Options.from_environment() == options
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(S3Options.from_environment())


@pytest.mark.parametrize(
    ("name", "value"),
    [("PART_SIZE", "1MiB"), ("SSE", "rot13"), ("OBJECT_LOCK_DAYS", "0"), ("MAX_ATTEMPTS", "many"),
     ("ENDPOINT", "s3.example:9000"), ("ENDPOINT", "http://user:hunter2@s3.example"), ("NO_SUCH", "1")],
)  # fmt: skip
def test_the_error_of_an_invalid_value_names_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(UsageProblem, match=f"The variable {PREFIX}{name}: ") as wrong:
        S3Options.from_environment()
    assert "hunter2" not in str(wrong.value)


@pytest.mark.parametrize(
    "variables",
    [{"KMS_KEY_ID": "x"}, {"OBJECT_LOCK_DAYS": "3"}, {"OBJECT_LOCK_MODE": "COMPLIANCE"}],
)
def test_incomplete_settings_are_refused(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(UsageProblem, match=r"go together|needs sse"):
        S3Options.from_environment()


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
@pytest.mark.parametrize("url", ["http://user:hunter2@s3.example", "https://s3.example/hunter2", "hunter2:9"])
def test_an_endpoint_of_aws_that_cannot_be_used_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, url: str
) -> None:
    monkeypatch.setenv(variable, url)
    with pytest.raises(UsageProblem, match="endpoint that AWS's variables") as refused:
        S3Options.from_environment()
    assert "hunter2" not in str(refused.value)


def test_without_settings_of_aws_the_sdk_is_not_loaded(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "botocore.session", None)
        options = S3Options.from_environment()
    assert (options.endpoint, options.region, options.path_style) == (None, "us-east-1", False)
    (home / ".aws").mkdir()
    (home / ".aws/config").write_text("[default]\nregion = eu-north-1\n")
    assert S3Options.from_environment().region == "eu-north-1"


def test_a_missing_profile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(UsageProblem, match="nobody"):
        S3Options.from_environment()


@pytest.mark.parametrize(
    ("uri", "normal"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("s3a://bucket/a b/ü", "s3://bucket/a b/ü"),
    ],
)
def test_a_uri_has_one_form(uri: str, normal: str) -> None:
    assert open_storage(uri).uri == normal


@pytest.mark.parametrize("uri", ["s3://", "s3:///a", "s3://bucket/a//b", "s3://bucket/../b", "s3://b/./c"])
def test_an_invalid_uri_is_refused(uri: str) -> None:
    with pytest.raises(UsageProblem, match="s3://bucket/prefix"):
        open_storage(uri)


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3", "hdfs"])
def test_credentials_in_a_uri_are_refused_and_not_shown(scheme: str) -> None:
    with pytest.raises(UsageProblem, match=r"Credentials come from|is not a storage") as refused:
        open_storage(f"{scheme}://key:hunter2@bucket/a")
    assert "hunter2" not in str(refused.value)


def test_an_access_point_is_given_by_its_alias() -> None:
    with pytest.raises(UsageProblem, match="by its alias"):
        open_storage("s3://arn:aws:s3:eu-west-1:123456789012:accesspoint/backups/kafka")
    assert open_storage("s3://backups-abc123-s3alias/kafka").uri == "s3://backups-abc123-s3alias/kafka"


def test_a_missing_web_identity_token_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = str(home / "token")
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/backups")
    with pytest.raises(EnvironmentProblem, match=f"No such file or directory: {token}"):
        open_storage("s3://bucket/a").get("b")


def test_settings_are_documented() -> None:
    def text(value: object) -> object:
        return "" if value is None else value.human_readable() if isinstance(value, ByteSize) else value

    rows = "".join(
        f"| `{name}` | {text(field.default)} | {field.description} |\n"
        for name, field in S3Options.model_fields.items()
    )
    table = f"| setting | default | what it is |\n| --- | --- | --- |\n{rows}\n"
    assert table in (ROOT / "docs/s3.md").read_text(), table
