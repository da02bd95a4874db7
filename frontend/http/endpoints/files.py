"""/v1/files: keeps what clients upload for their batches, and what batches have answered."""

from typing import Annotated, Any

from msgspec import Meta

from ..answers.reply import LongReply, Reply
from ..endpoint import Call
from ..files.upload import Upload
from ..schemas.files import FileList, FileQuery, UploadForm


class Form(UploadForm, kw_only=True):
    """The form of an upload."""

    file: Annotated[str, Meta(description="the file, with a name", extra_json_schema={"format": "binary"})]


async def upload(call: Call, upload: Upload) -> Reply:
    return Reply.of(await upload.keep())


async def listing(call: Call, body: None) -> Reply:
    found, has_more = await call.stored.files(call.owner, call.asked(FileQuery))
    first_id, last_id = ends(found)
    return Reply.of(FileList(data=found, has_more=has_more, first_id=first_id, last_id=last_id))


async def file(call: Call, body: None) -> Reply:
    return Reply.of(await call.stored.file(call.owner, call.named))


async def content(call: Call, body: None) -> LongReply:
    file, pieces = await call.stored.content(call.owner, call.named)
    # Never shown by a browser, whatever is in it.
    headers = [(b"content-length", b"%d" % file.bytes), (b"content-disposition", b"attachment")]
    return LongReply(pieces, b"application/octet-stream", headers)


async def delete(call: Call, body: None) -> Reply:
    return Reply.of(await call.stored.delete_file(call.owner, call.named))


def ends(found: list[Any]) -> tuple[str, str] | tuple[None, None]:
    """Return the first and the last id of a page."""
    return (found[0].id, found[-1].id) if found else (None, None)
