"""One line of OpenAI's batch files: reads the request as the server's endpoints do, and writes the answer as a line.

The forms of the requests are in `line_forms.py`. Ids and times are the caller's.
"""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from ...protocol.errors import PenstockError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.sampling import SamplingParams
from ..http.answers.errors import ApiError, as_api_error, refusal
from ..http.answers.long_json import LongJson
from ..http.endpoints.numbers.form import NumberForm, ReplyNames
from ..http.endpoints.numbers.results import Results
from ..http.requests.decoding import converted
from ..receipts.receipt import PLAIN, View
from .line_forms import LINE_FORMS, AnswerContext, LineForm, LineKind

KEYS = {"custom_id", "method", "url", "body"}
_NO_ANSWER = "This line asks for numbers, not for text: `penstock batch` and /v1/batches answer it."


class LineIdentity(NamedTuple):
    """What tells one line's answer from others: in its ids, and in its time."""

    digits: str  # 24 hexadecimal ones
    created: int  # Unix seconds

    @classmethod
    def new(cls) -> "LineIdentity":
        return cls(secrets.token_hex(12), int(time.time()))


@dataclass(slots=True)
class BatchLine:
    custom_id: str
    form: LineForm[Any] | NumberForm[Any] | ApiError  # of the request, or its error
    answer_ids: str = ""  # their prefix

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "BatchLine":
        """Parse a line; raises if there is no `custom_id` to label the answer with."""
        custom_id = value.get("custom_id")
        if not isinstance(custom_id, str):
            raise RequestError(f"custom_id={shown(custom_id)}: must be a text, by which its answer is known.")
        try:
            kind = _kind(value)
            return cls(custom_id, kind.form(converted(value.get("body"), kind.body)), kind.answer_ids)
        except (ApiError, RequestError) as error:
            return cls(custom_id, as_api_error(error))

    @classmethod
    def failed(cls, custom_id: str, output: RequestOutput) -> "BatchLine":
        """The line of a request in another form that has failed, for an error file."""
        return cls(custom_id, refusal(output.error_code, output.error_msg or ""))

    def prompt_and_params(self, params: SamplingParams) -> tuple[Any, SamplingParams]:
        """The prompt, conversation or refusal, and its parameters, which override the command's."""
        try:
            if isinstance(self.form, ApiError):
                raise self.form
            if isinstance(self.form, NumberForm):
                return RequestError(_NO_ANSWER), params
            return self.form.prompt_and_params(params)
        except (ApiError, RequestError) as error:
            return self.refuse(error), params

    def refuse(self, error: ApiError | PenstockError) -> RequestError:
        """Make the error its answer."""
        self.form = as_api_error(error)
        return RequestError(str(self.form))

    @property
    def numbers(self) -> NumberForm[Any] | None:
        """The form of a request for numbers, which has several prompts; None if it asks for text, or is refused."""
        return self.form if isinstance(self.form, NumberForm) else None

    @property
    def view(self) -> View:
        """How its answer is shown, for the receipt."""
        return self.form.view if isinstance(self.form, LineForm) else PLAIN

    def answer(
        self,
        output: RequestOutput,
        model: str,
        num_tokens: Callable[[str], int],
        identity: LineIdentity | None = None,
    ) -> str:
        """A line of OpenAI's output file; `model` is used if the body names none. Without an identity it gets a new
        one."""
        identity, form = identity or LineIdentity.new(), self.form
        if not isinstance(form, ApiError) and (output.error_code != 200 or isinstance(form, NumberForm)):
            form = refusal(output.error_code, output.error_msg or "")
        if isinstance(form, ApiError):
            return self._line(form.status, form.body, identity)
        json = LongJson()
        answer = form.answer(output, AnswerContext(*identity, model, num_tokens), json)
        return self._line(200, b"".join(json.pieces(answer)), identity)

    def answer_of_numbers(self, form: NumberForm[Any], outputs: Results, model: str, identity: LineIdentity) -> str:
        """The same of a request for numbers, of the results of its prompts."""
        json, names = LongJson(), ReplyNames(self.answer_ids + identity.digits, identity.created, model)
        try:
            return self._line(200, b"".join(json.pieces(form.answer(outputs, names, json))), identity)
        except RequestError as error:  # its receipt is too long
            return self._line(400, refusal(400, str(error)).body, identity)

    def _line(self, status: int, body: bytes, identity: LineIdentity) -> str:
        response = _Response(status, "req_" + identity.digits, msgspec.Raw(body))
        line = _Line("batch_req_" + identity.digits, self.custom_id, response)
        return msgspec.json.encode(line).decode() + "\n"


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: msgspec.Raw


class _Line(msgspec.Struct):
    id: str
    custom_id: str
    response: _Response
    error: None = None  # for requests that were never run


def _kind(value: Mapping[str, Any]) -> LineKind:
    """The endpoint's kind of line; raises an error with the server's message."""
    if unknown := value.keys() - KEYS:
        raise ApiError(400, f"A line of a batch has no {shown(min(unknown))}; it has {', '.join(sorted(KEYS))}.")
    if value.get("method", "POST") != "POST":
        raise ApiError(405, f"method={shown(value['method'])}: must be POST.", param="method")
    if (found := LINE_FORMS.get(str(value.get("url")))) is None:
        sentence = f"url={shown(value.get('url'))}: must be one of {', '.join(LINE_FORMS)}."
        raise ApiError(404, sentence, param="url")
    return found
