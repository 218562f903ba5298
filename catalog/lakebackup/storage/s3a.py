"""Turn errors of Hadoop's S3A in the JVM into the errors that `s3_client` raises in Python."""

from __future__ import annotations

import re

from botocore.exceptions import ClientError

from lakebackup.errors import EnvironmentProblem, LakebackupError
from lakebackup.storage import s3_client
from lakebackup.storage.s3 import S3Storage

_S3A = re.compile(r"fs\.s3a\b|software\.amazon\.awssdk|\bs3a?://")
_OBJECT = re.compile(r"\bs3a?://([^\s/:`'\",)]+)(?:/([^\s:`'\",)]*))?")
# The SDK's message, and S3's error code, which S3A writes after it. S3A writes the status or `null` if the
# answer had no code.
_ANSWER = re.compile(
    r"(?P<message>[^\n]{0,500}?)\s*\(Service: S3, Status Code: (?P<status>\d+)[^)\n]*\)"
    r"(?: \(SDK Attempt Count: \d+\))?(?::(?P<code>\w+))?"
)
_NO_BUCKET = re.compile(r"NoSuchBucket|UnknownStoreException")
_UNTRUSTED = re.compile(r"PKIX path|SSLHandshakeException|SSLPeerUnverified|CertificateException")
_NO_CREDENTIALS = re.compile(r"NoAuthWithAWSException|NoAwsCredentialsException|Unable to load credentials")
_UNREACHABLE = re.compile(
    r"(?P<kind>UnknownHostException|ConnectException|ConnectTimeoutException|SocketTimeoutException"
    r"|ConnectionClosedException|ApiCallTimeoutException|Unable to execute HTTP request)"
    r"(?P<reason>[^\n]{0,300})"
)
# The statuses to report. That of a missing object is not among them, since the caller may expect it.
_REPORTED = {"301", "400", "401", "403", "429", "500", "501", "503"}


def problem_in(text: str) -> LakebackupError | None:
    """Return the error for the text of a Java exception; None if the exception is not about S3."""
    if not _S3A.search(text):
        return None

    uri = _OBJECT.search(text)
    root, path = (f"s3://{uri[1]}", uri[2] or "") if uri else ("S3", "")
    if _NO_BUCKET.search(text):
        return s3_client.refusal("NoSuchBucket", "", "reach", path, root)
    for answer in _ANSWER.finditer(text):
        if answer["status"] in _REPORTED:
            if not answer["code"] or answer["code"] == "null":  # a HEAD is answered without code and message
                return _ask_in_python(root, path) or s3_client.refusal(
                    answer["status"], "", "reach", path, root
                )
            message = answer["message"].rpartition("Exception:")[2].strip()
            return s3_client.refusal(answer["code"], message, "reach", path, root)
    if _NO_CREDENTIALS.search(text):
        return s3_client.no_credentials(root)
    if _UNTRUSTED.search(text):
        return s3_client.no_connection("reach", path, root, "its certificate is not trusted", is_tls=True)
    if unreachable := _UNREACHABLE.search(text):
        reason = unreachable["reason"].rpartition("Exception:")[2].strip(" :")
        return s3_client.no_connection("reach", path, root, f"{unreachable['kind']}: {reason}", is_tls=False)
    return None


def _ask_in_python(root: str, path: str) -> LakebackupError | None:
    """Request the same object from this process. Return the error of S3's answer; None if there is none."""
    if not path:
        return None
    try:
        S3Storage(root).hurried(5).get(path, length=1)
    except EnvironmentProblem as error:
        return error if isinstance(error.__cause__, ClientError) else None
    except LakebackupError:
        return None
    return None
