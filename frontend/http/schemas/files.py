"""Bodies and queries of /v1/files and /v1/batches, in OpenAI's form."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_MOST_PAIRS, _LONGEST_KEY, _LONGEST_VALUE = 16, 64, 512
_AN_HOUR, _THIRTY_DAYS = 3600, 30 * 86400

Order = Annotated[Literal["asc", "desc"], Meta(description="by time of creation")]
LifeSeconds = Annotated[int, Meta(ge=_AN_HOUR, le=_THIRTY_DAYS)]
After = Annotated[str, Meta(max_length=128, description="the last id of the page before")] | None
Metadata = Annotated[
    dict[
        Annotated[str, Meta(max_length=_LONGEST_KEY)],
        Annotated[str, Meta(max_length=_LONGEST_VALUE)],
    ],
    Meta(max_length=_MOST_PAIRS),
]


class ExpiresAfter(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    anchor: Literal["created_at"]
    seconds: LifeSeconds


# --- files ------------------------------------------------------------------------------------------------------------


class UploadForm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of an upload, without the file itself."""

    purpose: Annotated[Literal["batch"], Meta(description="files are kept for batches alone")]
    expires_after: ExpiresAfter | None = None


class FileQuery(msgspec.Struct, kw_only=True):
    purpose: str | None = None
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 10_000
    order: Order = "desc"
    after: After = None


class FileObject(msgspec.Struct, kw_only=True):
    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: Literal["batch", "batch_output"]
    expires_at: int
    object: Literal["file"] = "file"
    status: Literal["processed"] = "processed"


class FileList(msgspec.Struct, kw_only=True):
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


class DeletedFile(msgspec.Struct, kw_only=True):
    id: str
    deleted: Literal[True] = True
    object: Literal["file"] = "file"


# --- batches ----------------------------------------------------------------------------------------------------------


class NewBatch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    input_file_id: Annotated[str, Meta(max_length=128)]
    endpoint: Annotated[str, Meta(max_length=128, description="the url of all lines")]
    completion_window: Annotated[str, Meta(description="hours or days until the batch expires, from 1h to 30d")]
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class BatchQuery(msgspec.Struct, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    after: After = None


class LineFault(msgspec.Struct, kw_only=True):
    """What is wrong with the input file, or the reason why a batch ended without all answers."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class LineFaults(msgspec.Struct, kw_only=True):
    data: list[LineFault]
    object: Literal["list"] = "list"


class RequestCounts(msgspec.Struct, kw_only=True):
    total: int = 0
    completed: int = 0
    failed: int = 0


class CachedTokens(msgspec.Struct, kw_only=True):
    cached_tokens: int


class BatchUsage(msgspec.Struct, kw_only=True):
    """Tokens of all answers. Those of thoughts are output tokens, and aren't counted apart."""

    input_tokens: int
    input_tokens_details: CachedTokens
    output_tokens: int
    total_tokens: int


BatchStatus = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled"
]


class BatchObject(msgspec.Struct, kw_only=True):
    id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchStatus
    created_at: int
    expires_at: int
    model: str | None = None  # known once the input file is validated
    object: Literal["batch"] = "batch"
    errors: LineFaults | None = None
    output_file_id: str | None = None
    error_file_id: str | None = None
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts = msgspec.field(default_factory=RequestCounts)
    usage: BatchUsage | None = None  # so far; known once lines have been answered
    metadata: Metadata | None = None


class BatchList(msgspec.Struct, kw_only=True):
    data: list[BatchObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"
