from __future__ import annotations

import pytest

from lakebackup.storage.s3a import problem_in

SERVER = "http://127.0.0.1:9"
JAVA = "An error occurred while calling o1.load.\n: "
SDK = "software.amazon.awssdk.services.s3.model.S3Exception: "
CLIENT = "software.amazon.awssdk.core.exception.SdkClientException: "
STATUS = "getFileStatus on s3://bucket/a/_delta_log: "


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        (
            (
                f"java.nio.file.AccessDeniedException: s3://bucket/a/_delta_log: {STATUS}{SDK}null "
                "(Service: S3, Status Code: 403, Request ID: null, Extended Request ID: null):null"
            ),
            f"Cannot reach a/_delta_log in s3://bucket: {SERVER} answers AccessDenied.",
            "s3:ListBucket",
        ),
        (
            (
                f"java.nio.file.AccessDeniedException: s3://bucket/a: {STATUS}{SDK}The token has expired. "
                "(Service: S3, Status Code: 400, Request ID: 1) (SDK Attempt Count: 1):ExpiredToken"
            ),
            f"Cannot reach a in s3://bucket: {SERVER} answers ExpiredToken (The token has expired.).",
            "get new ones",
        ),
        (
            (
                f"org.apache.hadoop.fs.s3a.UnknownStoreException: `s3://bucket/a': {STATUS}{SDK}The "
                "specified bucket does not exist (Service: S3, Status Code: 404, Request ID: 1):NoSuchBucket"
            ),
            f"There is no bucket bucket at {SERVER}",
            "check its name",
        ),
        (
            (
                f"org.apache.hadoop.fs.s3a.AWSClientIOException: {STATUS}{CLIENT}"
                "Unable to execute HTTP request: PKIX path building failed"
            ),
            f"in s3://bucket at {SERVER}: its certificate is not trusted",
            "AWS_CA_BUNDLE",
        ),
        (
            (
                f"org.apache.hadoop.fs.s3a.auth.NoAuthWithAWSException: {STATUS}Unable to load credentials "
                "from any of the providers in the chain"
            ),
            "There are no credentials for s3://bucket.",
            "AWS_ACCESS_KEY_ID",
        ),
        (
            (f"java.net.ConnectException: {STATUS}{CLIENT}Connection refused"),
            f"in s3://bucket at {SERVER}: ConnectException: Connection refused",
            "Check the network",
        ),
        (
            (
                f"org.apache.http.ConnectionClosedException: {STATUS}{CLIENT}Could not parse XML response.: "
                f"{CLIENT}Could not parse XML response.: Premature end of Content-Length delimited message"
            ),
            f"in s3://bucket at {SERVER}: ConnectionClosedException: Could not parse XML response.",
            "Check the network",
        ),
    ],
)
def test_an_error_of_the_jvm_reads_like_one_of_our_own_client(
    monkeypatch: pytest.MonkeyPatch, text: str, message: str, advice: str
) -> None:
    monkeypatch.setenv("LAKEBACKUP_S3__ENDPOINT", SERVER)
    monkeypatch.setenv("LAKEBACKUP_S3__MAX_ATTEMPTS", "1")
    problem = problem_in(f"{JAVA}{text}")
    assert problem is not None
    assert message in problem.message
    assert advice in problem.hint
    assert problem.exit_code == 6


@pytest.mark.parametrize(
    "text",
    [
        "java.net.ConnectException: broker:9092: Connection refused",
        (
            f"java.io.FileNotFoundException: s3://bucket/a: {STATUS}{SDK}no (Service: S3, Status Code: 404, "
            "Request ID: 1):NoSuchKey"
        ),
        "java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_errors_of_other_causes_are_not_explained(text: str) -> None:
    assert problem_in(f"{JAVA}{text}") is None
