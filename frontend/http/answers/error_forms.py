"""The forms that errors have: OpenAI's, Anthropic's and Ollama's. A request's path or headers decide which one.

The statuses are the same in all of them; `errors.py` chooses them.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from ..schemas.messages import AnthropicError, AnthropicFault
from ..schemas.ollama import OllamaError
from ..schemas.others import ErrorBody
from .errors import ApiError

# Status → Anthropic's name for this kind of error; of all others it is api_error.
_ANTHROPIC_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    503: "overloaded_error",
}


class ErrorForm(NamedTuple):
    schema: type[msgspec.Struct]
    body: Callable[[ApiError], bytes]


def _anthropic(error: ApiError) -> bytes:
    fault = AnthropicFault(type=_ANTHROPIC_KINDS.get(error.status, "api_error"), message=str(error))
    return msgspec.json.encode(AnthropicError(error=fault, request_id=error.request_id))


def _ollama(error: ApiError) -> bytes:
    return msgspec.json.encode(OllamaError(error=str(error)))


OPENAI = ErrorForm(ErrorBody, lambda error: error.body)
ANTHROPIC = ErrorForm(AnthropicError, _anthropic)
OLLAMA = ErrorForm(OllamaError, _ollama)


def error_form(path: str, headers: Iterable[tuple[bytes, bytes]] = ()) -> ErrorForm:
    """The form for a request. Anthropic's clients say with a header that they are some, also where paths are shared."""
    if path.startswith("/api/"):
        return OLLAMA
    if path == "/v1/messages" or path.startswith("/v1/messages/"):
        return ANTHROPIC
    return ANTHROPIC if any(name == b"anthropic-version" for name, _ in headers) else OPENAI
