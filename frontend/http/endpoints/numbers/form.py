"""What an endpoint for numbers does with a request: the prompts that it computes, and the body made of their results.

The server's endpoints and lines of batches share these forms; there is one for each kind of request.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import msgspec

from .....protocol.parameters.pooling import PoolingParams
from ....receipts.numbers import NumbersView, receipt_of
from ....session.session import Session
from ...answers.long_json import LongJson
from ...endpoint import AnyReply, Call, Work
from .results import OWN_CUTTING, Results, check_texts, long_reply, numbers_of, text_label

RequestT = TypeVar("RequestT", bound=msgspec.Struct)


class ReplyNames(NamedTuple):
    """What a reply has besides its request and its numbers."""

    id: str
    created: int  # Unix seconds
    model: str  # if the request names none


@dataclass(slots=True)
class NumberForm(ABC, Generic[RequestT]):
    """One request. Call `prompts` first: `reply` may need what it has found out."""

    body: RequestT

    texts_field: ClassVar[str] = "input"  # of the texts
    cutting: ClassVar[str] = OWN_CUTTING  # the field by which texts may be cut
    pool: ClassVar[Literal["texts", "templates"]] = "texts"  # threads in which prompts are made if that takes long

    @property
    @abstractmethod
    def num_texts(self) -> int | None:
        """How many texts there are; None where the schema limits them already. Raises if they contradict themselves."""

    @abstractmethod
    def prompts(self, session: Session[Any], name: str) -> Iterable[tuple[Any, PoolingParams]]:
        """The prompts for this model, which is called by this name; raises if it isn't made for the request."""

    @abstractmethod
    def reply(self, outputs: Results, names: ReplyNames, json: LongJson) -> msgspec.Struct:
        """The body; long lists in it may be deferred."""

    def view(self) -> NumbersView:
        """How the body shows the numbers, for its receipt."""
        return NumbersView()

    def answer(self, outputs: Results, names: ReplyNames, json: LongJson) -> msgspec.Struct:
        """The body, with the one receipt of all its prompts if it asks for that."""
        receipt = receipt_of(outputs, self.view)
        for output in outputs:
            output.receipt = None
        body = self.reply(outputs, names, json)
        if receipt is not None:
            body.receipt = receipt  # type: ignore[attr-defined]  # those that may ask for one have it
        return body

    @property
    def takes_long(self) -> bool:
        """Whether making the prompts takes long even if the request is short."""
        return False

    def label(self, number: int) -> str:
        """The name of one of several prompts in a refusal; empty if there is no other."""
        return text_label(number, self.num_texts or 1)

    def check_texts(self, most: int | None) -> None:
        """Refuse a request without texts, or with more than allowed."""
        if (count := self.num_texts) is not None:
            check_texts(count, most, self.texts_field)


def endpoint(form: type[NumberForm[Any]]) -> Work:
    """The work of an endpoint whose requests have this form."""

    async def work(call: Call, request: Any) -> AnyReply:
        wanted = form(request)
        wanted.check_texts(call.server.options.max_texts)
        async with call.model(request.model) as model:
            threads = getattr(model.threads, form.pool)
            prompts = await call.done(threads, wanted.prompts, model.session, model.name, takes_long=wanted.takes_long)
            outputs = await numbers_of(call, model, prompts, wanted.label, form.cutting)
            json, names = LongJson(), ReplyNames(call.active_request.id, int(time.time()), model.name)
            has_receipts = bool(outputs) and outputs[0].receipt is not None
            work = (wanted.answer, outputs, names, json)
            body = await call.done(model.threads.answers, *work, takes_long=has_receipts)
            notice = model.session.notice_of_cut(_length(request))
        if notice:
            body.notice = notice  # type: ignore[attr-defined]  # bodies with vectors have it
        return long_reply(json, body)

    return work


def _length(request: Any) -> int | None:
    """The length that the request wants its vectors to have."""
    found: int | None = getattr(request, "dimensions", None) or getattr(request, "output_dimension", None)
    return found
