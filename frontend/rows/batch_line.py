"""One line of OpenAI's batch files: reads the request as the server's endpoints do, and writes the answer as a line.

The bodies are those of `penstock serve`, read and written by the same structs. Ids and times are the caller's.
"""

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from ...protocol.errors import RequestError
from ...protocol.fields.decoding_fault import DecodingFault
from ...protocol.fields.rules import shown
from ...protocol.outputs import CompletionOutput, Logprob, LogprobsByToken, RequestOutput
from ...protocol.parameters.sampling import SamplingParams
from ..http.answers.errors import ApiError
from ..http.answers.logprobs import Section, chat_logprobs, completion_logprobs, prompt_logprobs
from ..http.answers.long_json import LongJson
from ..http.endpoints.chat import choice_of
from ..http.endpoints.completions import as_prompts
from ..http.requests.conversation import as_messages, as_tools, own_template
from ..http.requests.parameters import sampling_params
from ..http.requests.thinking import thinking_of
from ..http.requests.tool_choice import ToolChoice
from ..http.schemas.chat import ChatChoice, ChatCompletion, ChatRequest
from ..http.schemas.completions import Completion, CompletionChoice, CompletionRequest
from ..http.schemas.sampling import PromptDetails, Usage
from ..media.sources.parts import take_media
from ..requests.prompts import Conversation

_KEYS = {"custom_id", "method", "url", "body"}
_Request = ChatRequest | CompletionRequest


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
    url: str
    body: _Request | ApiError  # or its error
    choice: ToolChoice = field(default_factory=lambda: ToolChoice(None))

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "BatchLine":
        """Parse a line; raises if there is no `custom_id` to label the answer with."""
        custom_id, url = value.get("custom_id"), value.get("url")
        if not isinstance(custom_id, str):
            raise RequestError(f"custom_id={shown(custom_id)}: must be a text, by which its answer is known.")
        try:
            return cls(custom_id, str(url), _body(value))
        except ApiError as error:
            return cls(custom_id, str(url), error)

    def prompt_and_params(self, params: SamplingParams) -> tuple[Any, SamplingParams]:
        """The prompt, conversation or refusal, and its parameters, which override the command's."""
        try:
            if isinstance(self.body, ApiError):
                raise self.body
            if isinstance(self.body, ChatRequest):
                return self._conversation(self.body, params)
            return _prompt(self.body, params)
        except (ApiError, RequestError) as error:
            return RequestError(str(error)), params

    def _conversation(self, body: ChatRequest, params: SamplingParams) -> tuple[Conversation, SamplingParams]:
        if body.echo or body.continue_final_message or body.add_generation_prompt is False:
            raise ApiError(400, "echo, continue_final_message and add_generation_prompt are not for batches.")
        given = body.tool_choice
        choice = given if isinstance(given, str) or given is None else given.chosen
        self.choice = ToolChoice.of(choice, as_tools(body.tools))
        thinking = thinking_of(body)
        own = sampling_params(
            body,
            params,
            None,
            max_tokens=body.max_completion_tokens or body.max_tokens,
            logprobs=(body.top_logprobs or 0) if body.logprobs else None,
            call_shape=self.choice.shape,
            reasoning_max_tokens=thinking.max_tokens,
            lora_name=body.lora_name,
        )
        # A line opens no file and no URL.
        messages, template = as_messages(body.messages), own_template(body, is_trusted=True)
        take_media(messages, may_open=False)
        return Conversation(messages, self.choice.tools, template, thinking.template_options), own

    @classmethod
    def failed(cls, custom_id: str, output: RequestOutput) -> "BatchLine":
        """The line of a request in another form that has failed, for an error file."""
        return cls(custom_id, "", ApiError(output.error_code, output.error_msg or ""))

    def answer(self, output: RequestOutput, model: str, identity: LineIdentity | None = None) -> str:
        """A line of OpenAI's output file; `model` is used if the body names none. Without an identity it gets a new
        one."""
        identity = identity or LineIdentity.new()
        body = self.body
        if output.error_code != 200 and not isinstance(body, ApiError):
            body = ApiError(output.error_code, output.error_msg or "")
        if isinstance(body, ApiError):
            return self._line(body.status, body.body, identity)
        json = LongJson()
        completion: ChatCompletion | Completion
        if isinstance(body, ChatRequest):
            completion = self._chat_completion(body, output, json, identity)
        else:
            completion = self._completion(body, output, json, identity)
        completion.model = body.model or model
        return self._line(200, b"".join(json.pieces(completion)), identity)

    def _line(self, status: int, body: bytes, identity: LineIdentity) -> str:
        response = _Response(status, "req_" + identity.digits, msgspec.Raw(body))
        line = _Line("batch_req_" + identity.digits, self.custom_id, response)
        return msgspec.json.encode(line).decode() + "\n"

    def _chat_completion(
        self, body: ChatRequest, output: RequestOutput, json: LongJson, identity: LineIdentity
    ) -> ChatCompletion:
        call_parsers = self.choice.call_parsers(len(output.outputs), identity.digits)
        choices: list[ChatChoice] = []
        for answer in output.outputs:
            if call_parsers is not None:
                call_parsers[answer.index].take(answer)
            if not body.shows_thoughts:
                answer.reasoning_content = None
            found = answer.logprobs
            logprobs = None if found is None else chat_logprobs(found, body.top_logprobs or 0, json)
            choices.append(choice_of(answer, logprobs))
        completion = ChatCompletion(
            id="chatcmpl-" + identity.digits,
            created=identity.created,
            model="",
            choices=choices,
            usage=_usage(output),
        )
        if output.prompt_logprobs is not None:
            completion.prompt_logprobs = prompt_logprobs(filter(None, output.prompt_logprobs), json)
        return completion

    def _completion(
        self, body: CompletionRequest, output: RequestOutput, json: LongJson, identity: LineIdentity
    ) -> Completion:
        return Completion(
            id="cmpl-" + identity.digits,
            created=identity.created,
            model="",
            choices=[_text(body, output, answer, json) for answer in output.outputs],
            usage=_usage(output),
        )


def _text(body: CompletionRequest, output: RequestOutput, answer: CompletionOutput, json: LongJson) -> CompletionChoice:
    choice = CompletionChoice(
        index=answer.index, text=answer.text, finish_reason=answer.finish_reason, stop_reason=answer.stop_reason
    )
    if answer.logprobs is not None:
        choice.logprobs = completion_logprobs([Section(_Positions(answer.logprobs))], body.logprobs or 0, json)
    if output.prompt_logprobs is not None:
        choice.prompt_logprobs = prompt_logprobs(filter(None, output.prompt_logprobs), json)
    return choice


class _Response(msgspec.Struct):
    status_code: int
    request_id: str
    body: msgspec.Raw


class _Line(msgspec.Struct):
    id: str
    custom_id: str
    response: _Response
    error: None = None  # for requests that were never run


@dataclass(frozen=True, slots=True)
class _Positions:
    """Log-probabilities as objects instead of packed ones."""

    positions: list[LogprobsByToken]

    def __iter__(self) -> Iterator[LogprobsByToken]:
        return iter(self.positions)

    def tokens(self) -> Iterator[str]:
        return (entry.decoded_token or "" for entry in self._chosen())

    def chosen(self) -> Iterator[float]:
        return (entry.logprob for entry in self._chosen())

    def _chosen(self) -> Iterator[Logprob]:
        return (next(iter(position.values())) for position in self.positions)


_ENDPOINTS: dict[str, type[_Request]] = {
    "/v1/chat/completions": ChatRequest,
    "/v1/completions": CompletionRequest,
}


def _body(value: Mapping[str, Any]) -> _Request:
    """Read the body; raises `ApiError` with the server's message."""
    if unknown := value.keys() - _KEYS:
        raise ApiError(400, f"A line of a batch has no {shown(min(unknown))}; it has {', '.join(sorted(_KEYS))}.")
    if value.get("method", "POST") != "POST":
        raise ApiError(405, f"method={shown(value['method'])}: must be POST.", param="method")
    kind = _ENDPOINTS.get(str(value.get("url")))
    if kind is None:
        sentence = f"url={shown(value.get('url'))}: must be one of {', '.join(_ENDPOINTS)}."
        raise ApiError(404, sentence, param="url")
    try:
        return msgspec.convert(value.get("body"), kind)
    except msgspec.ValidationError as error:
        fault = DecodingFault.of(error, kind, whole="body", given=value.get("body"))
        raise ApiError(400, fault.sentence, param=fault.field or None) from None


def _prompt(body: CompletionRequest, params: SamplingParams) -> tuple[Any, SamplingParams]:
    prompts = as_prompts(body.prompt)
    if len(prompts) > 1:
        raise ApiError(400, "prompt: a line of a batch has one prompt; give each prompt its own line.", param="prompt")
    if body.echo or body.suffix or body.best_of not in (None, body.n or 1):
        raise ApiError(400, "echo, suffix and best_of are not for batches; leave them out.")
    own = sampling_params(
        body, params, None, max_tokens=body.max_tokens, logprobs=body.logprobs, lora_name=body.lora_name
    )
    [prompt] = prompts
    return {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}, own


def _usage(output: RequestOutput) -> Usage:
    num_prompt, num_output = len(output.prompt_token_ids), sum(len(answer.token_ids) for answer in output.outputs)
    return Usage(
        prompt_tokens=num_prompt,
        completion_tokens=num_output,
        total_tokens=num_prompt + num_output,
        prompt_tokens_details=PromptDetails.of(output),
    )
