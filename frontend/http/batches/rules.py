"""A loaded model as a batch sees it: the server's rules hold for its lines, and people's requests go first.

A `BatchSession` wraps the model's session. Its lines are judged like requests over HTTP, wait in the same threads, and
have a lower priority than any request of a person.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from ....protocol.errors import ClosedError, RequestError
from ....protocol.fields.rules import MOST
from ....protocol.options.config import EngineConfig
from ....protocol.parameters.sampling import SamplingParams
from ...models.pooled_model import PooledModel
from ...requests.door import Door
from ...requests.pending_request import PendingRequest
from ...requests.prompts import Conversation, Messages, ParsedPrompt, RenderedPrompt
from ...requests.request import Notify, guarded
from ...session.engine_transport import EngineTransport
from ...session.session import LoraAdapters, Session
from ...session.threads import Threads
from ..answers.errors import ApiError
from ..answers.generation import check_asked
from ..loaded_model import LoadedModel
from ..options import HttpOptions
from ..requests.conversation import rendered, require_trust
from ..requests.parameters import salted

Result = TypeVar("Result")

# Added to the priority of each line. A person's request has 0, or what the server allows: less than this.
_BELOW_PEOPLE = MOST // 2


class BatchSession(Session[PendingRequest]):
    transport: EngineTransport

    def __init__(self, model: LoadedModel, options: HttpOptions, owner: str, num_rows: Callable[[], int]) -> None:
        """`num_rows` returns how many lines may be in flight now."""
        session = model.session
        self.config, self.plan, self.daemon, self.is_quiet = session.config, session.plan, None, session.is_quiet
        self.transport, self.tokenizer = session.transport, session.tokenizer
        self._model = model
        self._options = options
        self._client = _client_of(owner)
        self._num_rows = num_rows
        self.most_texts = options.max_texts
        self.adapters = _OwnAdapters(session.adapters, model.lora_name)  # type: ignore[assignment]
        self.door = BatchDoor(session.door.of(self._client), model, options, owner)  # type: ignore[assignment]

    @property
    def tree_config(self) -> EngineConfig:
        return self._model.session.tree_config

    @property
    def pooled(self) -> PooledModel | None:
        return self._model.session.pooled

    @property
    def model_folders(self) -> tuple[Path, Path]:
        return self._model.session.model_folders

    def wait_until_ready(self) -> None:
        """Return at once: the model is loaded."""

    @property
    def window_size(self) -> int:
        return self._num_rows()

    def render(
        self,
        conversation: Messages,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> str:
        session = self._model.session
        return session.render(conversation, chat_template, tools, add_generation_prompt, template_options)

    def render_batch(
        self,
        conversations: Iterable[Messages],
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[RenderedPrompt | RequestError | Conversation]:
        options = dict(template_options or {})
        return [self._rendered(each, chat_template, tools, options) for each in conversations]

    def _rendered(
        self, messages: Messages, template: str | None, tools: Sequence[Any] | None, options: dict[str, Any]
    ) -> RenderedPrompt | RequestError:
        pools = self._model.session.threads
        threads = pools.templates if template is None else pools.request_templates

        def render() -> RenderedPrompt:
            if template is None:
                self._model.check_template_options(options, tools)
            else:
                require_trust(is_trusted=self._options.trust_request_chat_template)
            return rendered(self._model, messages, tools, options, chat_template=template)

        try:
            return _done(self.transport, threads, render, self._client)
        except (ApiError, RequestError) as error:
            return RequestError(str(error))


class _OwnAdapters(NamedTuple):
    """The adapters that a batch depends on: the one that is its model."""

    every: LoraAdapters
    name: str | None

    def folders(self) -> dict[str, str]:
        return {name: folder for name, folder in self.every.folders().items() if name == self.name}


class BatchDoor:
    """The door of a model with the server's rules before it."""

    replay: None = None  # no client's batch has an earlier run

    def __init__(self, door: Door, model: LoadedModel, options: HttpOptions, owner: str) -> None:
        self._door = door
        self._model = model
        self._options = options
        self._owner = owner

    @property
    def defaults(self) -> SamplingParams:
        return self._door.defaults

    def admit(
        self, prompts: Sequence[ParsedPrompt], notify: Notify, *, is_streamed: bool = False
    ) -> list[PendingRequest]:
        ruled = [self._ruled(prompt) for prompt in prompts]
        pools = self._model.threads
        threads = pools.media if any(prompt.has_media for prompt in ruled) else pools.texts
        admit = partial(self._door.admit, ruled, notify)
        return _done(self._model.session.transport, threads, admit, _client_of(self._owner))

    def _ruled(self, prompt: ParsedPrompt) -> ParsedPrompt:
        """The prompt as its owner may have it answered, or its refusal."""
        params = prompt.params
        try:
            check_asked(1, params, self._options)
            lora_name = self._model.adapter(params.lora_name)
        except (ApiError, RequestError) as error:
            return replace(prompt, refusal=prompt.refusal or str(error))
        below = min(params.priority + _BELOW_PEOPLE, MOST)
        salt = salted(self._owner or None, params.cache_salt)
        params = msgspec.structs.replace(
            guarded(params),
            priority=below,
            cache_salt=salt,
            lora_name=lora_name,
            continue_on_restart=False,  # the job continues it, once it has compared the model
        )
        return replace(prompt, params=params)


def _client_of(owner: str) -> str:
    """Who takes turns with others: apart from the owner's own requests."""
    return f"batches of {owner}"


def _done(transport: EngineTransport, threads: Threads, work: Callable[[], Result], client: str) -> Result:
    """Do work in the threads; if they are closed because the model has died, raises the cause."""
    try:
        return threads.submit(work, client=client).result()
    except ClosedError:
        transport.check()
        raise
