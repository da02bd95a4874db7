"""Results for the caller: `RequestOutput`, its samples, metrics and log-probabilities.

They are plain objects, also available as dicts and JSON. `outputs` acts both as sample 0 and as the sequence of all
samples, so scripts written either way work.
"""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

_LEAST, _MOST = -9999.0, 9999.0


class PlainOutput:
    """Plain dicts and JSON of an output, for files, logs and other programs.

    A dict equals the parsed JSON: keys are strings (token ids, too), and infinities, which JSON can't express, are
    -9999, as OpenAI's servers write them.
    """

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Every field under its own name, as numbers, strings, lists and dicts."""
        plain: dict[str, Any] = _plain(self)
        return plain

    def to_json(self, indent: int | None = None) -> str:
        """The same as JSON; on one line unless `indent` is given."""
        text = json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)
        # Half a surrogate pair, which a refused prompt may contain, becomes JSON's escape for it.
        return text.encode(errors="backslashreplace").decode()


class Logprob(NamedTuple):
    """Natural logarithm of a token's probability under the model itself, and its rank (1 is the most likely)."""

    logprob: float
    rank: int
    decoded_token: str | None = None


LogprobsByToken = dict[int, Logprob]


@dataclass(slots=True)
class FunctionCall(PlainOutput):
    name: str | None
    arguments: str  # JSON as the model wrote it


@dataclass(slots=True)
class ToolCall(PlainOutput):
    """A tool call by the model, in the form of OpenAI's clients and vLLM.

    `call.function.name` and `json.loads(call.function.arguments)` say what to call; the reply, a message with the role
    "tool", names `call.id`. In a stream the first delta of a call has its id and name; later ones have None there and
    more of the arguments. `index` says which call a delta belongs to. Arguments are passed on as they arrive, so those
    of an answer that was cut off may be incomplete; with `finish_reason` "tool_calls" all are whole. A call malformed
    before its arguments is left in the text.
    """

    id: str | None
    function: FunctionCall
    index: int = 0
    type: Literal["function"] = "function"


@dataclass(slots=True)
class CompletionOutput(PlainOutput):
    """One sample. In a stream it holds only the output since the previous delta."""

    index: int = 0
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    # stop, length, abort, error; tool_calls if a chat's answer ended by itself with calls, all of them complete
    finish_reason: str | None = None
    stop_reason: int | str | None = None  # the token id or string that stopped it
    send_idx: int = 0
    cumulative_logprob: float | None = None
    score: float | None = None  # of a beam: cumulative_logprob / length ** length_penalty
    logprobs: list[LogprobsByToken] | None = None
    # Parsed from the text, if the options reasoning_parser and tool_call_parser say how.
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None

    @property
    def resoning_content(self) -> str | None:
        """The same, under the misspelt name of an older page."""
        return self.reasoning_content


class Samples(list[CompletionOutput]):
    """All samples of a request; an attribute of `CompletionOutput` read here is that of sample 0."""

    __slots__ = ()

    if TYPE_CHECKING:  # for type checkers; tests check that the names are those of `CompletionOutput`
        index: int  # type: ignore[assignment]
        text: str
        token_ids: list[int]
        finish_reason: str | None
        stop_reason: int | str | None
        send_idx: int
        cumulative_logprob: float | None
        score: float | None
        logprobs: list[LogprobsByToken] | None
        reasoning_content: str | None
        tool_calls: list[ToolCall] | None

        def to_dict(self) -> dict[str, Any]: ...
        def to_json(self, indent: int | None = None) -> str: ...

    else:

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(self[0], name)


if not TYPE_CHECKING:
    # `list` has a method of that name, which hides sample 0's number from __getattr__.
    Samples.index = property(lambda self: self[0].index)


@dataclass(slots=True)
class RequestMetrics(PlainOutput):
    """Times of one request: the first two in Unix seconds, the others durations in seconds."""

    arrival_time: float
    inference_start_time: float | None = None
    first_token_time: float | None = None  # from arrival
    time_in_queue: float | None = None
    model_forward_time: float = 0.0  # summed over the steps that it was in
    model_execute_time: float | None = None  # from the start of inference to the end
    preemptions: int = 0
    num_prompt_tokens: int = 0
    num_output_tokens: int = 0
    num_draft_tokens: int = 0  # of all samples
    num_accepted_tokens: int = 0  # drafts that were the tokens sampled, and so are part of the output


@dataclass(slots=True)
class RequestOutput(PlainOutput):
    """The answer to one prompt or, in a stream, the new part of it."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: Samples
    finished: bool = False
    metrics: RequestMetrics | None = None
    num_cached_tokens: int = 0
    num_input_image_tokens: int = 0  # prompt tokens that stand for rows of pictures
    num_input_video_tokens: int = 0
    error_code: int = 200
    error_msg: str | None = None
    prompt_logprobs: list[LogprobsByToken | None] | None = None
    # In the first output after a daemon's processes died and were started again: how the answer goes on.
    notice: str | None = None
    receipt: str | None = None  # with the last output, if it was asked for


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return _finite(value)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):  # numpy's and torch's
        return _plain(value.tolist())
    return [_plain(item) for item in value]


def _finite(value: float) -> float | None:
    return None if math.isnan(value) else min(max(value, _LEAST), _MOST) if math.isinf(value) else value
