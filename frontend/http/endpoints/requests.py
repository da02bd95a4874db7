"""/v1/requests: lists the caller's own requests that are being answered, and stops one."""

from ..answers.reply import Reply
from ..endpoint import Call
from ..schemas.others import RequestList, StoppedRequest


async def requests(call: Call, body: None) -> Reply:
    return Reply.of(RequestList(data=await call.server.active_requests.of(call.active_request.owner)))


async def stop(call: Call, body: None) -> Reply:
    call.server.active_requests.find(call.named, call.active_request.owner).stop()
    return Reply.of(StoppedRequest(id=call.named))
