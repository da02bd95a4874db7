"""Reads the prompts of `generate`: arguments, lines of text, or lines of JSON with parameters of their own.

They are read one by one as needed, so a file may be larger than memory. A line that is no valid request is refused
without affecting the others. Conversations are rendered later.
"""

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, Protocol

import msgspec

from ...protocol.errors import ConfigError, RequestError
from ...protocol.fields.rules import shown
from ...protocol.fields.suggestion import suggestion
from ...protocol.parameters.pooling import PoolingParams
from ...protocol.parameters.sampling import SamplingParams
from ..media.sources.parts import media_of_prompt, take_media
from ..requests.prompts import MEDIA, OTHER_MEDIA, PARTS, Conversation, fault_of_dict
from .lines import Line

if TYPE_CHECKING:
    from ..session.session import Session
    from .batch_line import BatchLine

# For a shell's answers without a given limit: a model may never stop by itself.
USUAL_TOKENS = 512
STANDARD_INPUT = "-"
_JSON_BEGINS = ("{", "[", '"')
_FIRST_LINES = 8  # by which a plain text file is recognized
_FORM = (
    'Each line of a file of prompts is JSON, such as "What is 2 + 3?" in its quotation marks, {"prompt": "…", '
    '"max_tokens": 16}, {"messages": […]} or a line of OpenAI\'s batches'
)
_PLAIN_TEXT = ". Prompts in plain text, one a line, come through standard input: penstock generate MODEL < FILE"
_PARAMETERS = {field.name for field in msgspec.structs.fields(SamplingParams)}
# Parts of a line with a conversation, in addition to its parameters.
_OF_CONVERSATIONS = {"messages", "tools", "chat_template_kwargs"}


class Question(Protocol):
    """What a row asks for instead of text: the numbers of some prompts."""

    def prompts(self, session: "Session[Any]", name: str) -> Iterable[tuple[Any, PoolingParams]]: ...
    def label(self, number: int) -> str: ...  # of one of several prompts, for its refusal


class Row(NamedTuple):
    """A prompt, a conversation or a refusal; with its parameters, and labels from its line."""

    prompt: Any
    params: SamplingParams
    name: str | float | None = None
    batch: "BatchLine | None" = None  # a line in OpenAI's form, answered in that form
    has_usual_limit: bool = False  # no limit on the length of its answer was given
    question: Question | None = None  # instead of the prompt


def from_arguments(
    texts: Iterable[str], params: SamplingParams, standard_input: BinaryIO | None = None
) -> Iterator[Row]:
    """Each argument is a prompt, including line ends; a hyphen is all of standard input, as one."""
    for text in texts:
        if text == STANDARD_INPUT and standard_input is not None:
            text = standard_input.read().decode(errors="surrogateescape").removesuffix("\n").removesuffix("\r")
        yield Row(text if _is_unicode(text) else RequestError("This prompt is not UTF-8."), params)


def from_lines(lines: Iterable[Line], params: SamplingParams) -> Iterator[Row]:
    """Each line is a prompt; empty ones are skipped."""
    for line in lines:
        prompt = line.rstrip("\r\n") if isinstance(line, str) else line
        if prompt != "":
            yield Row(prompt, params)


def from_json_lines(lines: Iterable[Line], params: SamplingParams) -> Iterator[Row]:
    """Each line is a text, a list of token ids, or an object; empty ones are skipped.

    An object has the parts of a prompt or a conversation's `messages`, an `id` that is copied to the answer, and any
    sampling parameters; or it is a line of OpenAI's batches.
    """
    for number, line in enumerate(lines, start=1):
        if isinstance(line, RequestError):
            yield Row(line, params)
        elif line.strip():
            yield json_row(number, line, params)


def with_usual_limit(row: Row) -> Row:
    """The row with the usual limit, unless the command line or the line itself sets one."""
    params = row.params
    if params.max_tokens is not None or params.max_length is not None:
        return row
    usual = max(USUAL_TOKENS, params.min_tokens, params.min_length)
    return row._replace(params=msgspec.structs.replace(params, max_tokens=usual), has_usual_limit=True)


def require_prompt(lines: Iterable[Line], name: str, *, is_json: bool) -> Iterator[Line]:
    """Pass the lines on once there is a prompt among them; `name` is their source."""
    remaining = iter(lines)
    for num_empty, line in enumerate(remaining):
        if not isinstance(line, str) or (line.strip() if is_json else line.strip("\r\n")):
            found: Iterator[Line] = itertools.chain([line], remaining)
            found = _require_json(found, name) if is_json else found
            return itertools.chain(itertools.repeat("\n", num_empty), found)
    form = "JSON, one prompt a line" if is_json else 'prompts there, one a line, or give them as arguments: "…"'
    raise ConfigError(f"{name} is empty, so there is no prompt to answer. Write {form}.")


def _require_json(lines: Iterator[Line], name: str) -> Iterator[Line]:
    """Pass the lines on, or refuse a file whose first lines are all plain text."""
    first: list[Line] = []
    for line in lines:
        first.append(line)
        if not isinstance(line, str) or line.lstrip().startswith(_JSON_BEGINS):
            return itertools.chain(first, lines)
        if len(first) == _FIRST_LINES:
            break
    raise ConfigError(f"{name} is plain text. {_FORM}{_PLAIN_TEXT}.")


def json_row(number: int, line: str, params: SamplingParams) -> Row:
    """The row of a line that isn't empty; `number` is the line's, from 1."""
    name = None
    try:
        value = json_value(line)
        if isinstance(value, list) and not all(type(each) is int for each in value):
            raise UnusableLine("is a list, but not of token ids, which are whole numbers")
        if isinstance(value, (str, list)):
            return Row(value, params)
        if not isinstance(value, dict):
            raise UnusableLine("is neither a text, a list of token ids nor an object")
        if "custom_id" in value or {"url", "body"} <= value.keys():
            return _of_a_batch(value, params)
        name = checked_name(value.pop("id", None))
        _check_names(value)
        own = {key: own for key in value.keys() & _PARAMETERS if (own := value.pop(key)) is not None}
        params = msgspec.structs.replace(params, **own)
        return Row(_conversation(value) if "messages" in value else _parts(value), params, name)
    except UnusableLine as error:
        return Row(RequestError(f"Line {number} {error}."), params)
    except RequestError as error:
        return Row(RequestError(f"Line {number}: {error}"), params, name)


def _of_a_batch(value: dict[str, Any], params: SamplingParams) -> Row:
    from .batch_line import BatchLine  # slow to import, and few files need it

    batch = BatchLine.of(value)
    return Row(*batch.prompt_and_params(params), batch=batch, question=batch.numbers)


def _parts(value: dict[str, Any]) -> dict[str, Any]:
    if not value:
        raise RequestError("A prompt needs `prompt` (text), `prompt_token_ids` or `messages`.")
    if fault := fault_of_dict(value):
        raise RequestError(fault)
    for name in MEDIA:
        if value.get(name) is not None:
            media_of_prompt(value[name], may_open=False)  # a line opens no file and no URL
    return value


def _conversation(value: dict[str, Any]) -> Conversation:
    if others := value.keys() - _OF_CONVERSATIONS:
        raise RequestError(f"{shown(min(others))} can't be combined with `messages`: a line has one or the other.")
    messages, tools, options = value["messages"], value.get("tools"), value.get("chat_template_kwargs")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise RequestError('`messages` must be a list of messages such as {"role": "user", "content": "…"}.')
    if not isinstance(tools, list | None) or not isinstance(options, dict | None):
        raise RequestError("`tools` must be a list, and `chat_template_kwargs` an object.")
    take_media(messages, may_open=False)  # likewise
    return Conversation(messages, tools, template_options=options or {})


def _check_names(value: dict[str, Any]) -> None:
    known = PARTS | _PARAMETERS | _OF_CONVERSATIONS
    for name in sorted(value.keys() - known - MEDIA - OTHER_MEDIA):
        hint = suggestion(name, ["id", *known])
        raise RequestError(f"{shown(name)} is neither a part of a prompt nor a sampling parameter.{hint}")


def check_columns(names: Iterable[str]) -> None:
    """Raise for a column of a table that is no key of a line."""
    columns = dict.fromkeys(names)
    if "custom_id" in columns or {"url", "body"} <= columns.keys():
        from .batch_line import KEYS  # likewise slow to import

        if unknown := columns.keys() - KEYS:
            raise RequestError(f"A line of a batch has no {shown(min(unknown))}; it has {', '.join(sorted(KEYS))}.")
    else:
        columns.pop("id", None)
        _check_names(columns)


def checked_name(name: Any) -> str | float | None:
    if name is not None and not isinstance(name, (str, int, float)):
        raise UnusableLine("has an `id` that is neither text nor a number")
    return name


# --- JSON, whose parser accepts more than the standard ----------------------------------------------------------------


class UnusableLine(ValueError):
    """A description of a line that is no request."""


def json_value(line: str, plain_text: str = _PLAIN_TEXT, decoder: json.JSONDecoder | None = None) -> Any:
    """The line's value; raises `UnusableLine`, with this advice if the line seems to be plain text."""
    try:
        value = (decoder or _JSON).decode(line)
        if "\\u" in line:  # only an escape can be half of a pair
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except UnusableLine:
        raise
    except json.JSONDecodeError as error:
        words = error.msg.removesuffix(" at")
        hint = "" if line.lstrip().startswith(_JSON_BEGINS) else plain_text
        raise UnusableLine(f"is not JSON: {words} at character {error.pos + 1}{hint}") from None
    except UnicodeEncodeError:
        raise UnusableLine("holds half a surrogate pair (\\ud800 to \\udfff), which is no character") from None
    except ValueError:  # the interpreter's own bound
        raise UnusableLine("holds a whole number with too many digits") from None
    except RecursionError:
        raise UnusableLine("is nested too deep") from None
    except MemoryError:
        raise UnusableLine("takes more memory than there is") from None


def _refuse_constant(word: str) -> Any:
    raise UnusableLine(f"is not JSON: {word} is no number there")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise UnusableLine(f"holds the number {shown(digits)[1:-1]}, which is too large")
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse duplicate keys: it is unclear which value was meant."""
    found = dict(pairs)
    if len(found) < len(pairs):
        (twice, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise UnusableLine(f"has the key {shown(twice)} twice in one object")
    return found


def decoder_of(parse_float: Callable[[str], Any]) -> json.JSONDecoder:
    """A decoder to be made once: `json.loads` would make one for each line."""
    return json.JSONDecoder(parse_constant=_refuse_constant, parse_float=parse_float, object_pairs_hook=_object)


_JSON = decoder_of(_finite)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
