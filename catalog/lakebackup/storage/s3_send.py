"""Making one object, in one request or in parts, so that a lost answer is distinguished from a lost race."""

from __future__ import annotations

import logging
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from lakebackup.errors import UsageProblem
from lakebackup.storage import AlreadyExists
from lakebackup.storage.s3_client import client, paced, status_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

    from lakebackup.storage.options import S3Options

MOST_PARTS = 10_000
_AT_ONCE = 3  # parts on their way; one more is being read
_TOKEN = "lakebackup-put"  # noqa: S105 - an id of a put, no secret
_log = logging.getLogger(__name__)


class Sending:
    """One object on its way to `target` (Bucket and Key).

    Its metadata holds a token of this one put. When the SDK tries again after a lost answer and hears that
    the name is taken (412) or the upload unknown (404), the token shows whether that was our own first try.
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
        self._kept: dict[str, Any] = {
            "Metadata": {**(metadata or {}), _TOKEN: self._token},
            **_protection(options, locked),
        }

    def whole(self, data: bytes) -> None:
        """Put `data` in one request. Raises ClientError (412 when the name is taken) or BotoCoreError."""
        self._surely(
            lambda: self._client.put_object(
                **self._target, **self._kept, **self._condition, Body=paced(data, self._options)
            )
        )

    def parts(self, parts: Iterable[bytes]) -> None:
        """Put `parts` one after the other; nothing is visible, and nothing is kept, unless all arrived."""
        # One checksum of the whole object, which a reader gets and compares.
        settings: Any = self._client.meta.config
        checked = settings.request_checksum_calculation == "when_supported"  # some servers know none
        whole: dict[str, Any] = {"ChecksumType": "FULL_OBJECT"} if checked else {}
        algorithm: dict[str, Any] = {"ChecksumAlgorithm": "CRC32"} if checked else {}
        created = self._client.create_multipart_upload(**self._target, **self._kept, **whole, **algorithm)
        self._target["UploadId"] = created["UploadId"]
        try:
            done = self._send(parts)
            self._surely(
                lambda: self._client.complete_multipart_upload(
                    **self._target, **self._condition, **whole, MultipartUpload={"Parts": done}
                )
            )
        except BaseException:
            self._abort()
            raise

    def _send(self, parts: Iterable[bytes]) -> list[CompletedPartTypeDef]:
        done: list[CompletedPartTypeDef] = []
        under_way: deque[Future[CompletedPartTypeDef]] = deque()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for number, data in enumerate(parts, 1):
                if number > MOST_PARTS:
                    raise UsageProblem(
                        f"{self._target['Key']} has over {MOST_PARTS:,} parts, more than S3 takes.",
                        hint="Set a larger part_size in [s3].",
                    )
                under_way.append(pool.submit(self._part, number, data))
                if len(under_way) == _AT_ONCE:
                    done.append(under_way.popleft().result())
            done += [part.result() for part in under_way]
        return done

    def _part(self, number: int, data: bytes) -> CompletedPartTypeDef:
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

    def _surely(self, request: Callable[[], object]) -> None:
        """Make the object visible, once. 409 is a race without a winner yet: that is retried."""
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
            # Who lost such a race at the end of an upload may find the upload gone with it.
            if self._condition and owner is not None and status in (404, 409):
                raise AlreadyExists(
                    f"{self._target['Key']} is there already, in s3://{self._target['Bucket']}."
                ) from error
            raise

    def _owner(self) -> str | None:
        """The token of the object's put, nothing where there is no object. Raises when that stays unknown."""
        try:
            found = self._client.head_object(Bucket=self._target["Bucket"], Key=self._target["Key"])
        except ClientError as error:
            if status_of(error) == 404:
                return None
            raise
        return found["Metadata"].get(_TOKEN, "")


def _protection(options: S3Options, locked: bool) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if options.sse:
        wanted["ServerSideEncryption"] = options.sse
    if options.kms_key_id:
        wanted["SSEKMSKeyId"] = options.kms_key_id
    if locked and options.object_lock_mode and options.object_lock_days:
        wanted["ObjectLockMode"] = options.object_lock_mode
        wanted["ObjectLockRetainUntilDate"] = datetime.now(UTC) + timedelta(days=options.object_lock_days)
    return wanted
