"""A model behind the server: prompts go to its session's tree, and what comes back is handed on as it comes."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...protocol.errors import RequestError
from ...protocol.sampling import SamplingParams
from ..requests.budget import Charge
from ..requests.pending_request import PackedOutput, PendingRequest
from ..requests.prompts import Rendered
from ..session.model_threads import ModelThreads
from ..session.private import PrivateSession
from ..text.template_input import TemplateInput
from ..text.tokenizer import Tokenizer
from .arrivals import Arrival
from .models import Submitted


@dataclass(slots=True)
class LoadedModel:
    """A `Model` over a session that is ready, for as long as its lease."""

    session: PrivateSession
    name: str
    lora_name: str | None = None  # set where the name asked for is an adapter's
    serves_adapters: bool = True

    @property
    def threads(self) -> ModelThreads:
        return self.session.threads

    def adapter(self, asked: str | None) -> str | None:
        if asked and not self.serves_adapters:
            raise RequestError(f"There is no adapter {asked!r} here.")
        return asked or self.lora_name

    @property
    def max_model_len(self) -> int:
        return self.session.door.plan.max_model_len

    @property
    def tokenizer(self) -> Tokenizer:
        return self.session.tokenizer

    @property
    def defaults(self) -> SamplingParams:
        return self.session.door.defaults

    def render(
        self,
        conversation: Sequence[Mapping[str, Any]],
        chat_template: str | None,
        tools: Sequence[Any] | None,
        add_generation_prompt: bool,
        template_options: Mapping[str, Any] | None,
    ) -> str:
        session = self.session
        given = None if tools is None else list(tools)
        turn = TemplateInput(list(conversation), given, dict(template_options or {}), add_generation_prompt)
        if chat_template is None:
            [text] = session.render_model_template([turn])
        else:
            [text] = session.render_request_template(chat_template, [turn])
        if isinstance(text, RequestError):
            raise text
        return text

    async def stream(
        self,
        prompt: Rendered | Mapping[str, Any],
        params: SamplingParams,
        charge: Charge,
        *,
        is_streamed: bool,
        on_submit: Callable[[Submitted], None],
    ) -> AsyncGenerator[PackedOutput]:
        """A prompt is cut into tokens in a thread: a tokenizer comes from a stranger, and other streams go on."""
        session, arrival = self.session, Arrival()

        def admit() -> PendingRequest:
            asked = list(session.door.parse([prompt], params))
            return session.door.of(charge.client).admit(asked, arrival.notify, is_streamed=is_streamed)[0]

        request = await self.threads.texts.run(admit, client=charge.client)
        if request.is_finished:  # refused at the door
            yield request.take_packed()
            return
        charge.grow(request.own_bytes)
        request.charge = charge
        submitted = Submitted(request, session.transport)
        try:
            session.transport.submit([request])
            on_submit(submitted)
            is_finished = False
            while not is_finished:
                await arrival.wait()
                if not is_streamed and not request.is_finished and request.error is None:
                    continue
                # Until there is no more: an error behind the last words is told no second time.
                while not is_finished and (news := session.news(request, PendingRequest.take_packed)) is not None:
                    is_finished = news.output.finished
                    yield news
        finally:
            submitted.leave()
