"""Send one object to S3, in one request or in parts.

A conditional put can fail because the object exists. If the answer to the first try was lost, the object may
be our own. So each put stores a random token in the object's metadata, and compares it after a failure.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from lakebackup.errors import UsageProblem
from lakebackup.storage.interface import AlreadyExists
from lakebackup.storage.options import S3Options
from lakebackup.storage.s3_client import client, paced, status_of

if TYPE_CHECKING:
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef


MOST_PARTS = 10_000
_MAX_PARTS_IN_FLIGHT = 3  # one more part is being read meanwhile
_TOKEN = "lakebackup-put"  # noqa: S105 - an id of a put, no secret
_log = logging.getLogger(__name__)


class Sending:
    """One put of an object to `target` (Bucket and Key).

    The object's metadata holds a token of this put. When the SDK retries after a lost answer and the name is
    taken (412) or the upload unknown (404), the token shows whether our own first try succeeded.
    """

    def __init__(
        self,
        target: Mapping[str, str],
        options: S3Options,
        *,
        if_absent: bool,
        metadata: Mapping[str, str] | None = None,
        locked: bool = True,
    ) -> None:
        self._target: dict[str, Any] = dict(target)
        self._client = client(options)
        self._options = options
        self._token = uuid4().hex
        self._condition: dict[str, Any] = {"IfNoneMatch": "*"} if if_absent else {}
        self._attributes: dict[str, Any] = {
            "Metadata": {**(metadata or {}), _TOKEN: self._token},
            **_protection(options, locked),
        }

    def send_whole(self, data: bytes) -> None:
        """Put `data` in one request. Raises BotoCoreError, ClientError (412: exists), AlreadyExists."""
        self._request_once(
            lambda: self._client.put_object(
                **self._target, **self._attributes, **self._condition, Body=paced(data, self._options)
            )
        )

    def parts(self, parts: Iterable[bytes]) -> None:
        """Put `parts` as one object. It is visible only when all parts arrived; otherwise they are deleted.

        Raises what `send_whole` raises, and UsageProblem for too many parts.
        """
        # The checksum is that of the whole object, so that a reader can compare it.
        settings: Any = self._client.meta.config
        use_checksums = settings.request_checksum_calculation == "when_supported"  # some servers support none
        checksum_type: dict[str, Any] = {"ChecksumType": "FULL_OBJECT"} if use_checksums else {}
        algorithm: dict[str, Any] = {"ChecksumAlgorithm": "CRC32"} if use_checksums else {}
        upload = self._client.create_multipart_upload(
            **self._target, **self._attributes, **checksum_type, **algorithm
        )
        self._target["UploadId"] = upload["UploadId"]
        try:
            completed_parts = self._send_parts(parts)
            self._request_once(
                lambda: self._client.complete_multipart_upload(
                    **self._target,
                    **self._condition,
                    **checksum_type,
                    MultipartUpload={"Parts": completed_parts},
                )
            )
        except BaseException:
            self._abort()
            raise

    def _send_parts(self, parts: Iterable[bytes]) -> list[CompletedPartTypeDef]:
        completed_parts: list[CompletedPartTypeDef] = []
        in_flight: deque[Future[CompletedPartTypeDef]] = deque()
        with ThreadPoolExecutor(_MAX_PARTS_IN_FLIGHT) as pool:
            for number, data in enumerate(parts, 1):
                if number > MOST_PARTS:
                    raise UsageProblem(
                        f"{self._target['Key']} has over {MOST_PARTS:,} parts, more than S3 takes.",
                        hint="Set a larger part_size in [s3].",
                    )
                in_flight.append(pool.submit(self._send_part, number, data))
                if len(in_flight) == _MAX_PARTS_IN_FLIGHT:
                    completed_parts.append(in_flight.popleft().result())
            completed_parts += [part.result() for part in in_flight]
        return completed_parts

    def _send_part(self, number: int, data: bytes) -> CompletedPartTypeDef:
        answer = self._client.upload_part(**self._target, PartNumber=number, Body=paced(data, self._options))
        part: CompletedPartTypeDef = {"PartNumber": number, "ETag": answer["ETag"]}
        if "ChecksumCRC32" in answer:
            part["ChecksumCRC32"] = answer["ChecksumCRC32"]
        return part

    def _abort(self) -> None:
        try:
            self._client.abort_multipart_upload(**self._target)
        except (BotoCoreError, ClientError) as error:
            if status_of(error) != 404:
                _log.warning(
                    "Parts of an upload stay on the server until a lifecycle rule aborts it: %s", error
                )

    def _request_once(self, request: Callable[[], object]) -> None:
        """Send the request that makes the object visible, and find out whether it succeeded.

        409 means that concurrent puts have no winner yet, so it is retried.
        """
        tries = Retrying(
            retry=retry_if_exception(lambda error: status_of(error) == 409),
            stop=stop_after_attempt(self._options.max_attempts),
            wait=wait_random_exponential(0.05, max=2),
            reraise=True,
        )
        try:
            tries(request)
        except (BotoCoreError, ClientError) as error:
            status = status_of(error)
            owner = None if status in (400, 401, 403) else self._owner()
            if owner == self._token:
                return
            # If another put won at the end of our upload, the server may have deleted the upload (404).
            if self._condition and owner is not None and status in (404, 409):
                raise AlreadyExists(
                    f"{self._target['Key']} is there already, in s3://{self._target['Bucket']}."
                ) from error
            raise

    def _owner(self) -> str | None:
        """The token in the object's metadata; None without an object, empty without a token.

        Raises ClientError or BotoCoreError if the server does not tell.
        """
        try:
            head = self._client.head_object(Bucket=self._target["Bucket"], Key=self._target["Key"])
        except ClientError as error:
            if status_of(error) == 404:
                return None
            raise
        return head["Metadata"].get(_TOKEN, "")


def _protection(options: S3Options, locked: bool) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if options.sse:
        arguments["ServerSideEncryption"] = options.sse
    if options.kms_key_id:
        arguments["SSEKMSKeyId"] = options.kms_key_id
    if locked and options.object_lock_mode and options.object_lock_days:
        arguments["ObjectLockMode"] = options.object_lock_mode
        arguments["ObjectLockRetainUntilDate"] = datetime.now(UTC) + timedelta(days=options.object_lock_days)
    return arguments
