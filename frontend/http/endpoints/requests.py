"""/v1/requests: those of the caller's own that are being answered, and the end of one."""

from ..endpoint import Call
from ..reply import Reply
from ..schemas.others import RequestList, StoppedRequest


async def requests(call: Call, body: None) -> Reply:
    return Reply.of(RequestList(data=await call.server.running.of(call.running.owner)))


async def stop(call: Call, body: None) -> Reply:
    call.server.running.find(call.named, call.running.owner).stop()
    return Reply.of(StoppedRequest(id=call.named))
