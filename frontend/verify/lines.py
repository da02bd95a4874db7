"""Reads the answers that are to be verified: lines of a file, or outputs."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ...protocol.errors import ConfigError, RequestError
from ...protocol.options.speculation import JOURNAL
from ...protocol.outputs import RequestOutput
from ...protocol.parameters.sampling import SamplingParams
from ...protocol.pooling.outputs import PoolingRequestOutput
from ..jobs.formats.formats import answer_lines_of, lines_of
from ..jobs.job_input import JobInput
from ..pooling.decisions import Decision
from ..receipts.numbers import PREFIX as NUMBERS
from ..receipts.numbers import NumbersReceipt
from ..receipts.receipt import SEPARATOR, Receipt
from ..rows.lines import Line
from ..rows.prompts import UnusableLine, decoder_of, json_row, json_value
from ..rows.rendering import Rendering
from ..session.session import Session
from .bodies import is_known
from .kept import ReceiptsBeside, lines_of_journal, model_of_journal
from .number_forms import FORMS
from .written_numbers import WrittenNumber

_NO_RECEIPT = "it has no receipt"

_UNKNOWN = "it is neither the body of a chat, a completion or a response, nor an output"
_UNKNOWN_NUMBERS = "it is neither a body of vectors, scores, classes or decisions, nor an output"
_WRITTEN = decoder_of(WrittenNumber)
OUTPUTS = (RequestOutput, PoolingRequestOutput, Decision)
AnyReceipt = Receipt | NumbersReceipt


class ClaimedBody(NamedTuple):
    """A body with its receipts, one for each prompt, or the reason why it has none that can be judged."""

    name: str
    body: Mapping[str, Any]
    receipts: list[AnyReceipt]
    reason: str | None = None

    @property
    def of_texts(self) -> list[Receipt]:
        """Its receipts, unless it has numbers."""
        return [receipt for receipt in self.receipts if isinstance(receipt, Receipt)]

    @property
    def num_prompts(self) -> int:
        return sum(len(receipt.prompts) if isinstance(receipt, NumbersReceipt) else 1 for receipt in self.receipts)

    @property
    def model(self) -> str | None:
        name = self.body.get("model")
        return name if isinstance(name, str) else None


def opened(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise ConfigError(f"{os.fspath(path)} cannot be read: {error.strerror}.") from error


def from_file(file: BinaryIO, name: str) -> Iterator[ClaimedBody]:
    """The answers in a file of lines, or in a job's journal. Those without a receipt may have it in the journal next to
    the file."""
    path = Path(name)
    if path.suffix == JOURNAL:
        yield from _from_journal(path)
        return
    with closing(ReceiptsBeside(path)) as beside:
        for number, line in enumerate(_lines_of(path, file), start=1):
            if isinstance(line, RequestError):
                yield ClaimedBody(str(number), {}, [], str(line))
            elif line.strip():
                body = _of_line(str(number), line, beside)
                is_without = body.reason == _NO_RECEIPT and beside.hindrance
                yield body._replace(reason=f"{_NO_RECEIPT}, and {beside.hindrance}") if is_without else body


def _lines_of(path: Path, file: BinaryIO) -> Iterator[Line]:
    """The lines of a file of answers; a table has them in a column."""
    if path.suffix == ".parquet":
        return (line.decode(errors="replace") for line in answer_lines_of(path, file))
    return lines_of(path, file)


def _from_journal(path: Path) -> Iterator[ClaimedBody]:
    for number, (line, error) in enumerate(lines_of_journal(path), start=1):
        body = _of_line(str(number), line.decode(errors="replace"))
        yield body if error is None else body._replace(receipts=[], reason=str(error))


def from_outputs(outputs: Iterable[Any]) -> Iterator[ClaimedBody]:
    for number, output in enumerate(outputs):
        if not isinstance(output, OUTPUTS):
            raise RequestError(f"outputs has {type(output).__name__} at {number}; it takes RequestOutput, or a path.")
        yield _of_body(str(number), output.to_dict())


class LedBodies(NamedTuple):
    """Bodies, and what the first one that has a receipt says about all of them."""

    model: str
    receipt: AnyReceipt
    bodies: Iterator[ClaimedBody]

    @classmethod
    def of(cls, bodies: Iterator[ClaimedBody], name: str, given: str | None) -> "LedBodies":
        """`given` is the model that is to judge them; without it the first body's is, or that of the job, and only
        those that don't name another one are judged."""
        before: list[ClaimedBody] = []
        reasons: set[str | None] = set()
        for body in bodies:
            before.append(body if body.receipts else body._replace(body={}))  # of which nothing else is wanted
            if not body.receipts:
                reasons.add(body.reason)
                continue
            if (model := given or body.model or model_of_journal(Path(name))) is None:
                raise ConfigError(f"{name} names no model. Give --model.")
            every = chain(before, bodies)
            return cls(model, body.receipts[0], every if given else map(partial(_only_of, model), every))
        if _UNKNOWN in reasons or _UNKNOWN_NUMBERS in reasons:
            raise ConfigError(f"{name} has receipts, but none in a form that is judged: {_UNKNOWN}.")
        first = f" (of the first: {before[0].reason})" if before else ""
        raise ConfigError(
            f"{name} has no answer with a receipt, and no journal with receipts is next to it{first}. Give --receipt "
            "to the command that answers; the journal of `penstock batch` has them without that."
        )


def _only_of(model: str, body: ClaimedBody) -> ClaimedBody:
    if not body.receipts or body.model in (None, model):
        return body
    reason = f"its model is {body.model}, and that of the first answer {model}; --model names one for all"
    return ClaimedBody(body.name, body.body, [], reason)


def given_prompts(source: str | os.PathLike[str], session: Session[Any], names: Set[str]) -> dict[str, Any]:
    """The prompts of a file that have these names, to be rendered when their turn comes."""
    found: dict[str, Any] = {}
    for line in JobInput(Path(source)).lines():
        if isinstance(line.line, RequestError):
            continue
        row = json_row(line.number, line.line, SamplingParams())
        name = row.name if row.batch is None else row.batch.custom_id
        if (key := str(line.row if name is None else name)) in names:
            found[key] = Rendering(session, is_raw=False, system=None).prompt(row)
    return found


def _of_line(number: str, line: str, beside: ReceiptsBeside | None = None) -> ClaimedBody:
    try:
        found = json_value(line, decoder=_WRITTEN if f'"{NUMBERS}' in line else None)
    except UnusableLine as error:
        return ClaimedBody(number, {}, [], f"it {error}")
    if not isinstance(found, dict):
        return ClaimedBody(number, {}, [], "it is not a JSON object")
    if "custom_id" not in found:
        name = str(found.get("id", found.get("index", number))) if "outputs" in found else number
        return _of_body(name, found, partial(_kept, beside, found))
    response: dict[str, Any] = found["response"] if isinstance(found.get("response"), dict) else {}
    body = response.get("body")
    if not isinstance(body, dict):
        return ClaimedBody(str(found["custom_id"]), {}, [], "it has no body")
    if found.get("error") is not None or response.get("status_code", 200) != 200:
        return ClaimedBody(str(found["custom_id"]), body, [], "it is an error, not an answer")
    return _of_body(str(found["custom_id"]), body, partial(_kept, beside, found))


def _of_body(name: str, body: Mapping[str, Any], kept: Callable[[], list[AnyReceipt]] = list) -> ClaimedBody:
    """`kept`: the receipts of a body that has none itself."""
    if body.get("error") or body.get("error_code", 200) != 200:
        return ClaimedBody(name, body, [], "it is an error, not an answer")
    text = body.get("receipt")
    try:
        receipts = _receipts(text) if isinstance(text, str) else kept()
    except RequestError as error:
        return ClaimedBody(name, body, [], str(error))
    if not receipts:
        return ClaimedBody(name, body, [], _NO_RECEIPT)
    if isinstance(receipts[0], NumbersReceipt):
        return ClaimedBody(name, body, receipts if any(form.fits(body) for form in FORMS) else [], _UNKNOWN_NUMBERS)
    if not is_known(body):
        return ClaimedBody(name, body, [], _UNKNOWN)
    return ClaimedBody(name, body, receipts)


def _receipts(text: str) -> list[AnyReceipt]:
    if text.lstrip().startswith(NUMBERS[:2]):
        return [NumbersReceipt.read(text)]
    return [Receipt.read(each) for each in text.split(SEPARATOR)]


def _kept(beside: ReceiptsBeside | None, line: Mapping[str, Any]) -> list[AnyReceipt]:
    receipt = None if beside is None else beside.of(line)
    return [] if receipt is None else [receipt]
