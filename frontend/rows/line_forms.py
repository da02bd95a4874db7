"""The kinds of requests that a line of a batch may have: how each is read, and how its answer is written.

There is a form for each endpoint of the server whose answers have no times in them. Requests are read by the functions
of these endpoints, and answers are made of the same structs; those that answer with numbers share their forms.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from ...protocol.outputs import CompletionOutput, Logprob, LogprobsByToken, RequestOutput
from ...protocol.parameters.sampling import SamplingParams
from ..http.answers.errors import ApiError
from ..http.answers.logprobs import Section, chat_logprobs, completion_logprobs, prompt_logprobs
from ..http.answers.long_json import LongJson
from ..http.answers.message_blocks import MessageBlocks, whole_message
from ..http.answers.response_items import ResponseItems, finish_response, new_response
from ..http.endpoints.chat import choice_of
from ..http.endpoints.numbers.cohere import CohereEmbedForm
from ..http.endpoints.numbers.decisions import DecisionsForm
from ..http.endpoints.numbers.embeddings import ClassifyForm, EmbeddingsForm, PoolingForm
from ..http.endpoints.numbers.form import NumberForm
from ..http.endpoints.numbers.rerank import RerankForm, ScoreForm
from ..http.operations import OPERATIONS
from ..http.requests.conversation import as_messages, own_template
from ..http.requests.message_parts import continues_last, message_parts
from ..http.requests.request_parts import RequestParts, as_prompts, chat_parts, completion_params, response_parts
from ..http.requests.tool_choice import ToolChoice
from ..http.schemas.chat import ChatChoice, ChatCompletion, ChatRequest
from ..http.schemas.completions import Completion, CompletionChoice, CompletionRequest
from ..http.schemas.decisions import DecisionRequest
from ..http.schemas.messages import Message, MessagesRequest
from ..http.schemas.numbers import (
    ClassifyRequest,
    CohereEmbedRequest,
    EmbeddingRequest,
    PoolingRequest,
    RerankRequest,
    ScoreRequest,
)
from ..http.schemas.responses import Response, ResponsesRequest
from ..http.schemas.sampling import PromptDetails, Usage
from ..media.sources.parts import take_media
from ..receipts.receipt import PLAIN, View, with_view
from ..requests.prompts import Conversation

RequestT = TypeVar("RequestT", bound=msgspec.Struct)


class AnswerContext(NamedTuple):
    """What an answer has besides its request and its output."""

    digits: str  # of its ids
    created: int  # Unix seconds
    model: str  # if the body names none
    num_tokens: Callable[[str], int]


@dataclass(slots=True)
class LineForm(ABC, Generic[RequestT]):
    body: RequestT

    @abstractmethod
    def prompt_and_params(self, defaults: SamplingParams) -> tuple[Any, SamplingParams]:
        """The prompt or conversation, and its parameters; raises if the request is refused."""

    @abstractmethod
    def answer(self, output: RequestOutput, context: AnswerContext, json: LongJson) -> msgspec.Struct: ...

    @property
    def view(self) -> View:
        """How its body shows an answer, for the receipt."""
        return PLAIN


@dataclass(slots=True)
class ChatLine(LineForm[ChatRequest]):
    choice: ToolChoice = field(default_factory=lambda: ToolChoice(None))

    def prompt_and_params(self, defaults: SamplingParams) -> tuple[Conversation, SamplingParams]:
        body = self.body
        if body.continue_final_message or body.add_generation_prompt is False:
            raise ApiError(400, "continue_final_message and add_generation_prompt are not for batches.")
        parts = chat_parts(body, defaults, None, body.lora_name)
        self.choice = parts.choice
        return _conversation(parts, own_template(body, is_trusted=True)), parts.params

    def answer(self, output: RequestOutput, context: AnswerContext, json: LongJson) -> ChatCompletion:
        body, call_parsers = self.body, self.choice.call_parsers(len(output.outputs), context.digits)
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
            id="chatcmpl-" + context.digits,
            created=context.created,
            model=body.model or context.model,
            choices=choices,
            usage=usage_of(output),
        )
        if output.prompt_logprobs is not None:
            completion.prompt_logprobs = prompt_logprobs(filter(None, output.prompt_logprobs), json)
        completion.receipt = _receipt(output, self.view)
        return completion

    @property
    def view(self) -> View:
        return self.choice.view(hides_thoughts=not self.body.shows_thoughts)


@dataclass(slots=True)
class ResponseLine(LineForm[ResponsesRequest]):
    parts: RequestParts | None = None

    def prompt_and_params(self, defaults: SamplingParams) -> tuple[Conversation, SamplingParams]:
        self.parts = response_parts(self.body, defaults, None, None)
        return _conversation(self.parts, None), self.parts.params

    def answer(self, output: RequestOutput, context: AnswerContext, json: LongJson) -> Response:
        parts = self._parts()
        choice, params = parts.choice, parts.params
        response = new_response(self.body, params, "resp_" + context.digits, context.created, context.model)
        call_parsers, items = choice.call_parsers(1, context.digits), ResponseItems(context.digits)
        [answer] = output.outputs
        if call_parsers is not None:
            call_parsers[0].take(answer)
        list(items.feed(answer))
        list(items.close("incomplete" if answer.finish_reason == "length" else "completed"))
        finish_response(response, items, answer.finish_reason, usage_of(output), context.num_tokens)
        response.receipt = _receipt(output, self.view)
        return response

    @property
    def view(self) -> View:
        return self._parts().choice.view(hides_thoughts=False)

    def _parts(self) -> RequestParts:
        return self.parts or response_parts(self.body, SamplingParams(), None, None)


@dataclass(slots=True)
class CompletionLine(LineForm[CompletionRequest]):
    def prompt_and_params(self, defaults: SamplingParams) -> tuple[dict[str, Any], SamplingParams]:
        body = self.body
        prompts = as_prompts(body.prompt)
        if len(prompts) > 1:
            sentence = "prompt: a line of a batch has one prompt; give each prompt its own line."
            raise ApiError(400, sentence, param="prompt")
        if body.echo or body.add_special_tokens is False:
            raise ApiError(400, "echo and add_special_tokens are not for batches; leave them out.")
        params = completion_params(body, defaults, None, body.lora_name)
        [prompt] = prompts
        return {"prompt": prompt} if isinstance(prompt, str) else {"prompt_token_ids": prompt}, params

    def answer(self, output: RequestOutput, context: AnswerContext, json: LongJson) -> Completion:
        return Completion(
            id="cmpl-" + context.digits,
            created=context.created,
            model=self.body.model or context.model,
            choices=[self._choice(output, answer, json) for answer in output.outputs],
            usage=usage_of(output),
            receipt=_receipt(output, self.view),
        )

    def _choice(self, output: RequestOutput, answer: CompletionOutput, json: LongJson) -> CompletionChoice:
        choice = CompletionChoice(
            index=answer.index, text=answer.text, finish_reason=answer.finish_reason, stop_reason=answer.stop_reason
        )
        if answer.logprobs is not None:
            sections = [Section(ObjectPositions(answer.logprobs))]
            choice.logprobs = completion_logprobs(sections, self.body.logprobs or 0, json)
        if output.prompt_logprobs is not None:
            choice.prompt_logprobs = prompt_logprobs(filter(None, output.prompt_logprobs), json)
        return choice


@dataclass(slots=True)
class MessagesLine(LineForm[MessagesRequest]):
    parts: RequestParts | None = None

    def prompt_and_params(self, defaults: SamplingParams) -> tuple[Conversation, SamplingParams]:
        self.parts = parts = message_parts(self.body, defaults, None, None)
        if continues_last(parts.messages):
            raise ApiError(400, "messages: a batch continues no text of the assistant; end with the user's.")
        return _conversation(parts, None), parts.params

    def answer(self, output: RequestOutput, context: AnswerContext, json: LongJson) -> Message:
        choice = (self.parts or message_parts(self.body, SamplingParams(), None, None)).choice
        call_parsers, blocks = choice.call_parsers(1, context.digits), MessageBlocks(self.body, context.digits)
        [answer] = output.outputs
        if call_parsers is not None:
            call_parsers[0].take(answer)
        list(blocks.feed(answer))
        list(blocks.close())
        return whole_message(
            self.body, blocks, answer, usage_of(output), "msg_" + context.digits, context.model, context.num_tokens
        )


class LineKind(NamedTuple):
    body: type[msgspec.Struct]
    form: type[LineForm[Any]] | type[NumberForm[Any]]
    answer_ids: str  # their prefix


_BY_BODY: dict[Any, type[LineForm[Any]] | type[NumberForm[Any]]] = {
    ChatRequest: ChatLine,
    CompletionRequest: CompletionLine,
    ResponsesRequest: ResponseLine,
    MessagesRequest: MessagesLine,
    EmbeddingRequest: EmbeddingsForm,
    CohereEmbedRequest: CohereEmbedForm,
    RerankRequest: RerankForm,
    ScoreRequest: ScoreForm,
    ClassifyRequest: ClassifyForm,
    PoolingRequest: PoolingForm,
    DecisionRequest: DecisionsForm,
}
# By the path of the endpoint: a new one whose answers have no times in them needs a form here.
LINE_FORMS = {
    row.path: LineKind(row.body, _BY_BODY[row.body], row.answer_ids)
    for row in OPERATIONS
    if row.answer_ids and row.body is not None and row.body in _BY_BODY
}


def _conversation(parts: RequestParts, template: str | None) -> Conversation:
    messages = as_messages(parts.messages)
    take_media(messages, may_open=False)  # a line opens no file and no URL
    return Conversation(messages, parts.choice.tools, template, parts.template_options)


def _receipt(output: RequestOutput, view: View) -> str | UnsetType:
    return UNSET if output.receipt is None else with_view(output.receipt, view)


@dataclass(frozen=True, slots=True)
class ObjectPositions:
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


def usage_of(output: RequestOutput) -> Usage:
    """The counts of one prompt's answers."""
    num_prompt, num_output = len(output.prompt_token_ids), sum(len(answer.token_ids) for answer in output.outputs)
    return Usage(
        prompt_tokens=num_prompt,
        completion_tokens=num_output,
        total_tokens=num_prompt + num_output,
        prompt_tokens_details=PromptDetails.of(output),
    )
