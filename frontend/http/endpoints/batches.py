"""/v1/batches: answers the requests of an uploaded file, in the time that people leave."""

from ..answers.reply import Reply
from ..endpoint import Call
from ..schemas.files import BatchList, BatchQuery, NewBatch
from .files import ends


async def create(call: Call, new: NewBatch) -> Reply:
    return Reply.of(await call.stored.create(call.owner, new))


async def listing(call: Call, body: None) -> Reply:
    found, has_more = await call.stored.batches(call.owner, call.asked(BatchQuery))
    first_id, last_id = ends(found)
    return Reply.of(BatchList(data=found, has_more=has_more, first_id=first_id, last_id=last_id))


async def batch(call: Call, body: None) -> Reply:
    return Reply.of(await call.stored.batch(call.owner, call.named))


async def cancel(call: Call, body: None) -> Reply:
    return Reply.of(await call.stored.cancel(call.owner, call.named))
