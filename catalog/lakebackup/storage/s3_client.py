"""The SDK's client for S3, one per process and set of options, and its errors in lakebackup's words."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    NoCredentialsError,
    ParamValidationError,
    SSLError,
)
from s3transfer.bandwidth import BandwidthLimitedStream, LeakyBucket
from s3transfer.utils import signal_not_transferring, signal_transferring

from lakebackup.errors import (
    Damaged,
    EnvironmentProblem,
    LakebackupError,
    NoPermission,
    NotFound,
    UsageProblem,
)
from lakebackup.storage.interface import AlreadyExists
from lakebackup.storage.options import S3Options

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


_CREDENTIALS_HINT = "Check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE or the machine's role."
_REGION_HINT = "Set the bucket's own region: AWS_REGION, or region of [s3]."
# The action that a refused request needs. S3 also refuses to read a missing object without s3:ListBucket.
_RIGHTS_HINTS = {
    "delete": "Allow these credentials s3:DeleteObject there. Or a lock holds the object.",
    "list": "Allow these credentials s3:ListBucket on the bucket.",
    "read": "Allow these credentials s3:GetObject there and s3:ListBucket on the bucket, with a key "
    "kms:Decrypt.",
    "write": "Allow these credentials s3:PutObject there, with a lock s3:PutObjectRetention, with a key "
    "kms:GenerateDataKey and kms:Decrypt.",
}
_HINTS = {
    "AccessDenied": "Allow these credentials s3:ListBucket, GetObject, PutObject, AbortMultipartUpload and "
    "DeleteObject, with a lock PutObjectRetention, with a key kms:GenerateDataKey and Decrypt. "
    "Or a lock holds the object.",
    "AuthorizationHeaderMalformed": _REGION_HINT,
    "ExpiredToken": "The credentials have ended: get new ones, then run the same command again.",
    "InvalidAccessKeyId": _CREDENTIALS_HINT,
    "InvalidRequest": "If this is about Object Lock: the bucket was made without. Take another one, or leave "
    "object_lock_mode away.",
    "InvalidToken": _CREDENTIALS_HINT,
    "InvalidObjectState": "The object is archived: have the server restore it first.",
    "NotImplemented": "Take a server that has conditional puts (If-None-Match: *).",
    "NoSuchBucket": "Create it, or check its name, the region and the endpoint.",
    "PermanentRedirect": _REGION_HINT,
    "RequestTimeTooSkewed": "Set this machine's clock.",
    "SignatureDoesNotMatch": _CREDENTIALS_HINT,
    "SlowDown": "The server wants fewer requests: run the same command again later.",
}

# HTTP status -> error code, for answers without a text.
_CODES_BY_STATUS = {
    "301": "PermanentRedirect",
    "401": "AccessDenied",
    "403": "AccessDenied",
    "503": "SlowDown",
}


@lru_cache(maxsize=16)
def client(options: S3Options) -> S3Client:
    """This process's client. Threads may share it; a forked process creates its own."""
    settings = Config(
        connect_timeout=options.connect_timeout,
        read_timeout=options.read_timeout,
        retries={"mode": "standard", "total_max_attempts": options.max_attempts},
        s3={"addressing_style": "path" if options.path_style else "auto"},
        max_pool_connections=32,
        tcp_keepalive=True,
    )
    # A new session, because threads must not share boto3's default session.
    s3_client: S3Client = boto3.session.Session().client(
        "s3",
        endpoint_url=options.endpoint,
        region_name=options.region,
        config=settings,
        verify=options.authorities(),
    )
    if options.requester_pays:  # not all operations of the SDK have an argument for this
        s3_client.meta.events.register("before-call.s3", _add_requester_pays)
    if options.max_bandwidth:  # the limit does not apply while the SDK reads the body for its checksum
        s3_client.meta.events.register_first("request-created.s3", signal_not_transferring)
        s3_client.meta.events.register_last("request-created.s3", signal_transferring)
    return s3_client


def _add_requester_pays(params: dict[str, Any], **_: object) -> None:
    params["headers"]["x-amz-request-payer"] = "requester"


@lru_cache(maxsize=1)
def _pace(bytes_a_second: int) -> LeakyBucket:
    """The rate limiter that all uploads of this process share."""
    return LeakyBucket(bytes_a_second)


def paced(data: bytes, options: S3Options) -> Any:
    """`data` as the body of a request: unchanged, or as a stream that limits the rate to `max_bandwidth`."""
    if not options.max_bandwidth:
        return data
    transfer: Any = SimpleNamespace(
        exception=None
    )  # the stream asks it for the error of a cancelled transfer
    return BandwidthLimitedStream(io.BytesIO(data), _pace(options.max_bandwidth), transfer)


# After a fork, both processes must not use one connection, and a lock that was held then is never released.
os.register_at_fork(after_in_child=client.cache_clear)
os.register_at_fork(after_in_child=_pace.cache_clear)


def code_of(error: BaseException) -> str:
    """S3's code for an error, such as NoSuchKey; the HTTP status for an answer without a code (to HEAD)."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def status_of(error: BaseException) -> int:
    """The HTTP status of an error, or 0 if there was no answer."""
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


@contextmanager
def explained(action: str, path: str, root_uri: str, options: S3Options) -> Iterator[None]:
    """Turn the SDK's errors in the block into errors of lakebackup. `root_uri` is the URI of the root."""
    try:
        yield
    except LakebackupError:
        raise
    except ClientError as error:
        raise _error_of_answer(error, action, path, root_uri, server_of(options)) from error
    except ParamValidationError as error:
        raise UsageProblem(f"S3 does not take this ({path} in {root_uri}): {error}") from error
    except NoCredentialsError as error:
        raise no_credentials(root_uri) from error
    except RecursionError as error:
        # If an answer has no region, the SDK requests the bucket's region, and gets the same answer again.
        raise refusal("PermanentRedirect", "", action, path, root_uri, server_of(options)) from error
    except FlexibleChecksumError as error:
        raise Damaged(
            f"{path} in {root_uri} did not arrive with the bytes its checksum was made of: {error}",
            hint="`lakebackup verify` shows whether the stored object is damaged.",
        ) from error
    except BotoCoreError as error:
        # Not for a connection that broke during the handshake, which is an SSLError too.
        is_tls = isinstance(error, SSLError) and "certificate verify failed" in str(error)
        raise no_connection(
            action, path, root_uri, str(error), is_tls=is_tls, server=server_of(options)
        ) from error
    except OSError as error:
        if error.filename is None or error.filename != _token_file():
            raise
        raise EnvironmentProblem(
            f"The file of the web identity's token cannot be read: {error.strerror}: {error.filename}.",
            hint="Check AWS_WEB_IDENTITY_TOKEN_FILE, or web_identity_token_file of the profile.",
        ) from error


def _token_file() -> str | None:
    file = os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE")
    return file or botocore.session.Session().get_scoped_config().get("web_identity_token_file")


def no_credentials(root_uri: str) -> EnvironmentProblem:
    """The error when there are no credentials."""
    return EnvironmentProblem(f"There are no credentials for {root_uri}.", hint=_CREDENTIALS_HINT)


def no_connection(
    action: str, path: str, root_uri: str, reason: str, *, is_tls: bool, server: str = ""
) -> EnvironmentProblem:
    """The error when the server did not answer. `is_tls`: because its certificate is not trusted. Without
    `server`, the message names the server of this process's settings."""
    return EnvironmentProblem(
        f"Cannot {action} {path or 'anything'} in {root_uri} at {server or _configured_server()}: {reason}",
        hint="Name the file of its certificate's authority: ca_bundle of [s3], or AWS_CA_BUNDLE."
        if is_tls
        else "Check the network and the endpoint, then run the same command again.",
    )


def server_of(options: S3Options) -> str:
    """The server of the options, for messages."""
    return options.endpoint or f"Amazon S3, {options.region}"


def _configured_server() -> str:
    return server_of(S3Options.from_environment())


def _error_of_answer(
    error: ClientError, action: str, path: str, root_uri: str, server: str
) -> LakebackupError:
    code, status = code_of(error), status_of(error)
    if code != "NoSuchBucket":
        if status == 404 and action != "write":
            return NotFound(f"There is no object {path} in {root_uri}.")
        if status == 412 and action == "write":
            return AlreadyExists(f"{path} is there already, in {root_uri}.")
        if status == 412:
            return EnvironmentProblem(
                f"{path} in {root_uri} was replaced while it was read.", hint="Try again."
            )
    message = str(error.response.get("Error", {}).get("Message", ""))
    return refusal(code, message, action, path, root_uri, server)


def refusal(
    code: str, message: str, action: str, path: str, root_uri: str, server: str = ""
) -> EnvironmentProblem:
    """The error for an answer with `code`, an error code or an HTTP status. `server` is as in
    `no_connection`."""
    server = server or _configured_server()
    if code == "NoSuchBucket":
        bucket = root_uri.removeprefix("s3://").partition("/")[0]
        return EnvironmentProblem(
            f"There is no bucket {bucket} at {server}: cannot {action} {path or 'anything'} there.",
            hint=_HINTS[code],
        )
    has_text = bool(message) and not code.isdigit()
    code = _CODES_BY_STATUS.get(code, code)
    reason = f"{code} ({message})" if has_text else code
    problem: type[EnvironmentProblem] = EnvironmentProblem
    hint = _HINTS.get(
        code, "Run the same command again. The server must support conditional puts (If-None-Match: *)."
    )
    if code == "AccessDenied":
        problem, hint = NoPermission, _RIGHTS_HINTS.get(action, hint)
    return problem(
        f"Cannot {action} {path or 'anything'} in {root_uri}: {server} answers {reason}.", hint=hint
    )
