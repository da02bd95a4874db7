"""Turns exceptions into errors for clients, in OpenAI's form, each with its status.

A 4xx says what is wrong with the request, in the words of the code that refused it. A 5xx says only that the server is
at fault: paths, addresses and tracebacks stay in the log.
"""

import logging
import re
import secrets

import msgspec

from ....protocol.errors import (
    BusyError,
    ClosedError,
    EngineDeadError,
    OutOfMemoryError,
    PenstockError,
    RequestError,
)
from ....protocol.outputs import RequestOutput
from ....protocol.parameters.sampling import SamplingParams
from ...requests.budget import BudgetError
from ..models import ModelNotServedError
from ..schemas.others import ErrorBody, Fault

log = logging.getLogger("penstock.http")

# Status → OpenAI's name for this kind of error. The OpenAPI document lists the same.
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    415: "invalid_request_error",
    429: "rate_limit_error",
    499: "cancelled",
    500: "server_error",
    503: "server_error",
    507: "server_error",
}
_BROKEN = "Something failed in the server; its log says what. Other requests go on."
_AWAY = "The model's processes have ended; its log says why. Ask again in a moment."
# of a message, which may contain the client's input
_MOST_CHARACTERS = 2000
_FIRST_WORD = re.compile(r"\w+")
# Absolute paths of two parts or more, which only this machine's own messages contain; all parts but the last may have
# spaces. Paths of endpoints, and places in a JSON schema (#/…), are none.
_PATH = re.compile(r"(?<![\w:/.#])(?!/(?:v1|api)/)(?:~|\.{0,2})/(?:[\w.@+-][\w.@+ -]*/)+[\w.@+-]*")


class ApiError(Exception):
    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int = 0,
        allow: str = "",  # of a 405: the methods of the path
    ) -> None:
        super().__init__(message if len(message) <= _MOST_CHARACTERS else message[:_MOST_CHARACTERS] + "…")
        self.status = status
        self.param = param and param[:_MOST_CHARACTERS]
        self.code = code
        self.retry_after = retry_after
        self.allow = allow
        self.request_id = f"req_{secrets.token_hex(12)}"  # Anthropic's errors have one

    @property
    def body(self) -> bytes:
        fault = Fault(message=str(self), type=KINDS[self.status], code=self.code or self.status, param=self.param)
        return msgspec.json.encode(ErrorBody(error=fault))

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        further = [(b"retry-after", str(self.retry_after).encode())] if self.retry_after else []
        if self.allow:
            further.append((b"allow", self.allow.encode()))
        if self.status == 401:
            further.append((b"www-authenticate", b"Bearer"))
        return further


def as_api_error(error: BaseException) -> ApiError:
    """The error to send for any exception raised while answering a request."""
    match error:
        case ApiError():
            return error
        case TimeoutError():
            return ApiError(408, "The answer took longer than this server allows; ask for fewer tokens.")
        case ModelNotServedError():
            return ApiError(404, without_paths(str(error)), param="model", code="model_not_found")
        case RequestError():
            return refusal(400, str(error))
        case BusyError():
            return ApiError(503, str(error), retry_after=1)
        case BudgetError():
            return ApiError(429, str(error), retry_after=1)
        case ClosedError():
            return ApiError(503, "This server is shutting down.", retry_after=5)
        case EngineDeadError():
            log.error("a request failed with its model: %s", error)
            return ApiError(503, _AWAY, retry_after=2)
        case OutOfMemoryError():
            log.error("a model could not be loaded: %s", error)
            return ApiError(503, "There is not enough memory to load this model now.", retry_after=30)
        case PenstockError():
            log.error("a request failed: %s", error)
            return ApiError(503, "This model can't be used now; the server's log says why.", retry_after=5)
    log.error("a request failed", exc_info=error)
    return ApiError(500, _BROKEN)


def check(output: RequestOutput) -> RequestOutput:
    """Raise the error of a request that has failed; otherwise return its output."""
    match output.error_code:
        case 200:
            return output
        case 400 | 429 as status:
            raise refusal(status, output.error_msg or "", retry_after=status == 429)
        case 499 | 503:
            raise ApiError(503, "The request was ended before its answer was complete.", retry_after=1)
    log.error("a request failed: %s", output.error_msg)
    raise ApiError(500, _BROKEN)


def refusal(status: int, sentence: str, *, retry_after: int = 0) -> ApiError:
    """If a refusal's sentence begins with a parameter's name, the error names that parameter."""
    first = _FIRST_WORD.match(sentence)
    param = first[0] if first and first[0] in SamplingParams.__struct_fields__ else None
    return ApiError(status, without_paths(sentence), param=param, retry_after=retry_after)


def without_paths(text: str) -> str:
    """The text with paths replaced. It is truncated first, since the search is slow on long texts."""
    return _PATH.sub("(a path)", text[: _MOST_CHARACTERS + 1])
