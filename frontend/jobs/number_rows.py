"""Rows of a job that ask for numbers: each has some prompts, and its answer is made once all of them have theirs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import ConfigError, RequestError
from ...protocol.outputs import CompletionOutput, RequestOutput, Samples
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.parameters.sampling import SamplingParams
from ..pooling.call_checks import require
from ..pooling.calls import labelled_error
from ..pooling.door import words_before
from ..requests.prompts import ParsedPrompt, parse_prompt
from ..rows.prompts import Question, Row
from ..session.session import Session
from .job_input import InputLine
from .journal.records import Answered

if TYPE_CHECKING:
    from ..rows.batch_line import LineIdentity

_JSON = msgspec.json.Encoder()


@dataclass(slots=True, eq=False)
class NumberRow:
    """A row whose prompts are being computed."""

    line: InputLine
    row: Row
    question: Question
    outputs: dict[int, Any] = field(default_factory=dict)  # `PoolingRequestOutput`s by the prompt's number
    num_prompts: int | None = None  # once the last one was taken
    refusal: RequestError | None = None  # of the whole row

    @property
    def is_complete(self) -> bool:
        return len(self.outputs) == self.num_prompts

    def prompts(self, session: Session[Any], name: str) -> Iterator[ParsedPrompt]:
        """Its prompts for the model of this name; a row that is refused as a whole has one, with the reason."""
        count, before = 0, None
        for prompt in self._parsed(session, name):
            if before is not None:
                yield before
            count, before = count + 1, prompt
        self.num_prompts = count  # known before the last one is computed
        if before is not None:
            yield before

    def _parsed(self, session: Session[Any], name: str) -> Iterator[ParsedPrompt]:
        from ..http.answers.errors import ApiError  # slow to import

        try:
            if self.row.batch is not None and self.row.batch.numbers is not None:
                self.row.batch.numbers.check_texts(session.most_texts)
            for prompt, params in self.question.prompts(session, name):
                yield parse_prompt(prompt, params)
        except (ApiError, RequestError) as error:
            session.transport.check()  # it may be refused because the model has just died
            self.refusal = RequestError(str(error)) if self.row.batch is None else self.row.batch.refuse(error)
            yield ParsedPrompt(None, None, SamplingParams(), str(self.refusal))

    @property
    def failure(self) -> RequestOutput | None:
        """The first of its prompts that has failed, in the form of an answer that failed."""
        for number, output in enumerate(self._in_order()):
            if output.error_code != 200:
                label = self.question.label(number) if self.refusal is None else ""
                return _as_answer([output], output.error_code, labelled_error(output, label))
        return None

    def summary(self) -> RequestOutput:
        """What its prompts have cost, in the form of an answer without text."""
        return _as_answer(self._in_order())

    def answered(self, model: str, identity: "LineIdentity") -> Answered:
        """The record of its answer, if none of its prompts has failed."""
        outputs = self._in_order()
        num_prompt = sum(len(output.prompt_token_ids) for output in outputs)
        num_cached = sum(output.num_cached_tokens for output in outputs)
        for output in outputs:
            output.num_cached_tokens = 0  # it depends on what ran before
        if (batch := self.row.batch) is not None and batch.numbers is not None:
            line, vector = batch.answer_of_numbers(batch.numbers, outputs, model, identity).encode(), b""
        else:
            line, vector = self._line(num_prompt), outputs[0].outputs.data.tobytes()
        return Answered(self.line.row, self.line.digest, 200, num_prompt, num_cached, 0, line, vector=vector)

    def _in_order(self) -> list[Any]:
        return [self.outputs[number] for number in range(len(self.outputs))]

    def _line(self, num_prompt: int) -> bytes:
        name = {} if self.row.name is None else {"id": self.row.name}
        return _JSON.encode({"index": self.line.row, **name, "usage": {"prompt_tokens": num_prompt}}) + b"\n"


def _as_answer(outputs: Sequence[Any], error_code: int = 200, error_msg: str | None = None) -> RequestOutput:
    ids = [each for output in outputs for each in output.prompt_token_ids]
    num_cached = sum(output.num_cached_tokens for output in outputs)
    samples = Samples([] if error_code == 200 else [CompletionOutput(finish_reason="error")])
    return RequestOutput(
        "", None, ids, samples, finished=True, num_cached_tokens=num_cached, error_code=error_code, error_msg=error_msg
    )


def check_texts_model(session: Session[Any], params: PoolingParams) -> None:
    """Refuse a model that can't give a vector for each text, in this form."""
    model = require(session, "embed", "embed")
    name, width = session.tree_config.model, _own_width(session)
    if model.form.by_token or params.by_token:
        raise ConfigError(
            f"embed writes one vector for each text, and {name} is to give one for each token. Use LLM.encode, or "
            "/pooling over HTTP."
        )
    if params.dimensions is not None and params.dimensions > width > 0:
        raise ConfigError(f"dimensions={params.dimensions:,}, and the vectors of {name} have {width:,} numbers.")
    words_before(model, params)


def width_of(session: Session[Any], params: PoolingParams) -> int:
    """How many numbers a vector has."""
    own, cut = _own_width(session), None if session.pooled is None else session.pooled.cut
    return params.dimensions or (own if cut is None else min(own, cut))


def _own_width(session: Session[Any]) -> int:
    return 0 if session.plan is None else session.plan.vector_width
