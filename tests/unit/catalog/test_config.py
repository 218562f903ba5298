from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from lakebackup.config import Properties, is_secret, load, parse_properties, read_properties
from lakebackup.errors import LakebackupError, NotFound, UsageProblem

SECRET = "hunter2-do-not-show"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and an environment without variables of lakebackup."""
    import os

    for name in [name for name in os.environ if name.startswith("LAKEBACKUP_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults() -> None:
    settings = load({})
    assert (settings.codec, settings.isolation, settings.lease_ttl) == ("zstandard", "read_committed", 60.0)
    assert settings.target_size == 128 * 1024 * 1024
    assert settings.repo is None
    assert dict(settings.kafka) == {}


def test_flags_before_environment_before_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "lakebackup.toml").write_text('repo = "file"\ncatalog = "file"\nsource = "file"\n')
    monkeypatch.setenv("LAKEBACKUP_REPO", "variable")
    monkeypatch.setenv("LAKEBACKUP_CATALOG", "variable")
    settings = load({"repo": "flag", "catalog": None})
    assert (settings.repo, settings.catalog, settings.source) == ("flag", "variable", "file")


def test_old_names_of_the_repository_are_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 0.1 called it destination."""
    file = folder / "lakebackup.toml"
    file.write_text('destination = "file"\n[approved]\ndestinations = ["s3://a/b"]\n')
    assert (load({}).repo, load({}).approved.repos) == ("file", ("s3://a/b",))
    monkeypatch.setenv("LAKEBACKUP_DESTINATION", "variable")
    assert load({}).repo == "variable"
    monkeypatch.setenv("LAKEBACKUP_REPO", "new variable")
    assert load({}).repo == "new variable"
    file.write_text('destination = "old"\nrepo = "new"\n')
    monkeypatch.delenv("LAKEBACKUP_REPO")
    monkeypatch.delenv("LAKEBACKUP_DESTINATION")
    assert load({}).repo == "new"


def test_properties_merge_by_their_dotted_names(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "lakebackup.toml").write_text(
        '[kafka]\nbootstrap.servers = "file:1"\n"client.id" = "file"\nssl.key.location = "k"\n'
        "enable.ssl.certificate.verification = true\nretry.backoff.ms = 5\nretry.backoff.max.ms = 6\n"
        '[spark]\nspark.executor.memoryOverhead = "1g"\n'
    )
    monkeypatch.setenv("LAKEBACKUP_KAFKA__BOOTSTRAP_SERVERS", "variable:1")
    monkeypatch.setenv("LAKEBACKUP_KAFKA__CLIENT_ID", "variable")
    settings = load({"kafka": {"bootstrap.servers": "flag:1"}})
    assert dict(settings.kafka) == {
        "bootstrap.servers": "flag:1", "client.id": "variable", "ssl.key.location": "k",
        "enable.ssl.certificate.verification": "true", "retry.backoff.ms": "5", "retry.backoff.max.ms": "6",
    }  # fmt: skip
    assert dict(settings.spark) == {"spark.executor.memoryOverhead": "1g"}


def test_the_configuration_file_is_chosen_by_flag_or_variable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("lakebackup", "variable", "flag"):
        (folder / f"{name}.toml").write_text(f'source = "{name}"\n')
    assert load({}).source == "lakebackup"
    monkeypatch.setenv("LAKEBACKUP_CONFIG", "variable.toml")
    assert load({}).source == "variable"
    assert load({}, "flag.toml").source == "flag"
    with pytest.raises(NotFound, match=r"none\.toml"):
        load({}, "none.toml")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (
            'rpeo = "x"',
            r"toml: there is no setting 'rpeo'.*\nDid you mean repo",
        ),
        ("zzz = 1", r"no setting 'zzz'.*\n.*There are: repo, catalog"),
        ("source = 'a'\ncodec = \n", r"lakebackup\.toml is not valid TOML: .*line 2"),
        ("codec = 'zip'", r"codec in lakebackup\.toml must be .*zstandard"),
        ("target_size = '12 parsecs'", "target_size in .*parsecs"),
        ("target_size = 12", "target_size in .*1024"),
        ("lease_ttl = 'soon'", "lease_ttl in .*span of time"),
        ("lease_ttl = 0", "lease_ttl in .*more than 0"),
        ("level = 'high'", "level in .*whole number"),
        ("kafka = 3", "kafka in .*table"),
        ("[kafka]\nacks = [1]", r"\[kafka\]: property acks"),
        ("a = 1\na = 2", "not valid TOML"),
        ("[s3]\nbucket = 'x'", r"s3\.bucket in lakebackup\.toml names no setting"),
        ("[s3]\npart_size = '1MiB'", r"s3\.part_size in lakebackup\.toml must be at least 5242880"),
        ("[s3]\nkms_key_id = 'x'", r"s3 in lakebackup\.toml: kms_key_id needs sse"),
    ],
)
def test_a_wrong_file_is_reported_by_place_and_name(folder: Path, text: str, complaint: str) -> None:
    (folder / "lakebackup.toml").write_text(text)
    with pytest.raises(UsageProblem) as wrong:
        load({})
    import re

    assert re.search(complaint, str(wrong.value)), str(wrong.value)


def test_a_wrong_value_names_where_it_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageProblem, match="--target-size: this is not a size; write 500MB"):
        load({"target_size": "huge"})
    monkeypatch.setenv("LAKEBACKUP_TARGET_SIZE", "huge")
    with pytest.raises(UsageProblem, match="variable LAKEBACKUP_TARGET_SIZE: "):
        load({})
    monkeypatch.setenv("LAKEBACKUP_KAFKA", "{")
    with pytest.raises(UsageProblem, match="LAKEBACKUP_"):
        load({})


@pytest.mark.parametrize(
    ("rate", "complaint"),
    [
        ("fast", "--bandwidth: 'fast' is not a number of bytes a second; write 50MB/s"),
        ("0", "--bandwidth: '0' is slower than 1KiB/s; write 50MB/s, or nothing for no limit"),
        (1023, "--bandwidth: 1023 is slower than 1KiB/s"),
    ],
)
def test_a_wrong_rate_says_how_to_write_one(rate: str | int, complaint: str) -> None:
    with pytest.raises(UsageProblem, match=complaint):
        load({"bandwidth": rate})


@pytest.mark.parametrize(
    "name",
    ["sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "sasl.jaas.config",
     "sasl.oauthbearer.client.secret", "sasl.oauthbearer.config", "spark.hadoop.fs.s3a.secret.key",
     "spark.hadoop.fs.s3a.access.key", "spark.ssl.keyPassword"],
)  # fmt: skip
def test_secrets_are_recognized_by_name(name: str) -> None:
    assert is_secret(name)
    assert SECRET not in repr(Properties({name: SECRET}))
    with pytest.raises(UsageProblem, match="is a secret") as refused:
        parse_properties([f"{name}={SECRET}"])
    assert SECRET not in str(refused.value)


def test_other_properties_are_shown() -> None:
    for name in ("bootstrap.servers", "sasl.username", "security.protocol", "ssl.key.location"):
        assert not is_secret(name)
        assert Properties({name: "shown"}).masked() == {name: "shown"}


def test_a_secret_is_usable_and_never_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "lakebackup.toml").write_text(f'[kafka]\nssl.key.password = "{SECRET}"\n')
    monkeypatch.setenv("LAKEBACKUP_KAFKA__SASL_PASSWORD", SECRET)
    settings = load({})
    assert dict(settings.kafka) == {"sasl.password": SECRET, "ssl.key.password": SECRET}
    assert pickle.loads(pickle.dumps(settings.kafka))["sasl.password"] == SECRET
    texts = (repr(settings), f"{settings.kafka}", str(settings.masked()), settings.model_dump_json())
    for text in (*texts, str(settings)):
        assert SECRET not in text
        assert "****" in text


@pytest.mark.parametrize(
    "text",
    [
        f'codec = "zip"\n[kafka]\nsasl.password = "{SECRET}"',
        f'[kafka]\nsasl.password = ["{SECRET}"]',
        f'[kafka]\nsasl.password = "{SECRET}',
        f'[kafka]\nsasl.password = "{SECRET}"\nsasl.password = "{SECRET}"',
        f'kafka = "sasl.password={SECRET}"',
    ],
)
def test_no_error_carries_a_secret(folder: Path, text: str) -> None:
    import traceback

    (folder / "lakebackup.toml").write_text(text)
    with pytest.raises(UsageProblem) as wrong:
        load({})
    assert SECRET not in "".join(traceback.format_exception(wrong.value))


def test_a_properties_file_is_read(folder: Path) -> None:
    file = folder / "client.properties"
    file.write_text(
        "# comment\nbootstrap.servers=a:9092,b:9092\n\n"
        "sasl.password = 50%=off;\nssl.endpoint.identification.algorithm=\n"
    )
    assert read_properties(file) == {
        "bootstrap.servers": "a:9092,b:9092",
        "sasl.password": "50%=off;",
        "ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (f"a=1\nsasl.password {SECRET}\n", "line 2 is not of the form"),
        (f"a=1\na={SECRET}\n", "line 2: a is there twice"),
        (f"[x]\nsasl.password={SECRET}\n", r"has \[sections\]"),
    ],
)
def test_a_wrong_properties_file_is_refused(folder: Path, text: str, complaint: str) -> None:
    file = folder / "client.properties"
    file.write_text(text)
    with pytest.raises(LakebackupError, match=complaint) as wrong:
        read_properties(file)
    assert SECRET not in str(wrong.value)


def test_a_missing_properties_file_is_not_found(folder: Path) -> None:
    with pytest.raises(NotFound, match="none"):
        read_properties(folder / "none")


def test_properties_of_the_command_line_are_parsed() -> None:
    assert parse_properties(["client.id=a=b", "x = y"]) == {"client.id": "a=b", "x": "y"}
    with pytest.raises(UsageProblem, match="key=value"):
        parse_properties(["client.id"])


def test_settings_of_s3_merge_and_reach_other_processes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "lakebackup.toml").write_text('[s3]\nsse = "AES256"\npart_size = "8MiB"\npath_style = false\n')
    monkeypatch.setenv("LAKEBACKUP_S3__PART_SIZE", "32MiB")
    s3_options = load({}).s3
    assert (s3_options.sse, s3_options.part_size, s3_options.path_style) == (
        "AES256",
        32 * 1024 * 1024,
        False,
    )
    assert s3_options.variables() == {
        "LAKEBACKUP_S3__SSE": "AES256",
        "LAKEBACKUP_S3__PART_SIZE": "33554432",
        "LAKEBACKUP_S3__PATH_STYLE": "False",
    }
