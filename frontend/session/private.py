"""A model opened in a process tree of its own, with its tokenizer, its door and its templates.

The daemon opens its models so, too. For its clients it renders templates in separate processes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ...protocol.errors import PenstockError, RequestError
from ...protocol.options.config import EngineConfig
from ...protocol.plugins import LOGITS_PROCESSORS, require_installed
from ..console import logs
from ..console.start_table import start_table
from ..models.generation_config import default_params
from ..models.model_files import find_model
from ..parsing import Parsings, settled
from ..requests.conversation_checks import check_conversation
from ..requests.door import Door
from ..requests.pending_request import PendingRequest
from ..requests.prompts import Messages, RenderedPrompt, check_template_options, check_tools
from ..requests.tool_schemas import argument_schemas
from ..text import end_tokens
from ..text.chat import template_text
from ..text.template_input import TemplateInput
from ..text.template_process import TemplateProcesses, render_request_template
from ..text.tokenizer import Tokenizer
from ..text.tokenizer_files import chat_templates, special_tokens
from .adapters import Adapters
from .session import Session
from .threads import ModelThreads
from .tree.transport import TreeTransport


class PrivateSession(Session[PendingRequest]):
    """`start` and `read_tokenizer` in either order, then `wait_until_ready` before the first request."""

    transport: TreeTransport
    door: Door
    adapters: Adapters

    def __init__(self, model: str | os.PathLike[str], options: dict[str, Any]) -> None:
        """Finds the model and reads what stands beside its weights; starts nothing yet."""
        self.plan = None
        self.daemon = None
        self.config = EngineConfig.from_options(model, **options)
        require_installed("logits_processors", LOGITS_PROCESSORS, self.config.logits_processors or ())
        self.is_quiet = logs.is_quiet(self.config.quiet)
        for notice in EngineConfig.notices(options):
            logs.say(notice, quiet=self.is_quiet)
        logs.say_places_once(quiet=self.is_quiet)
        self.files = find_model(self.config.model, self.config.tokenizer, self.config.revision, is_quiet=self.is_quiet)
        self.default_params = default_params(self.files.folder)
        self.chat_template = template_text(self.config.chat_template) if self.config.chat_template else None
        # Before the tree starts: its detokenizer must know which marks to show.
        folder = self.files.tokenizer_folder
        template = self.chat_template or chat_templates(folder)
        self.config = settled(self.config, template, partial(special_tokens, folder))
        self.parsings = Parsings.of(self.config, template)

    @classmethod
    def open(cls, model: str | os.PathLike[str], options: dict[str, Any]) -> "PrivateSession":
        """Its children load while this process reads the tokenizer."""
        session = cls(model, options)
        session.start()
        with session._closed_by_errors():
            session.read_tokenizer()
        return session

    def read_tokenizer(self) -> None:
        self.tokenizer = Tokenizer(self.files.tokenizer_folder, self.files.folder)

    def start(self) -> None:
        """Start the children; called again if the memory that they found was not enough."""
        self.threads = ModelThreads()
        self.templates = TemplateProcesses()
        self.transport = TreeTransport(self.config, self.files, self.parsings.shown)
        self.transport.on_close = self._close_beside
        with self._closed_by_errors():
            self.adapters = Adapters(self.config, self.transport)

    def wait_until_ready(self) -> None:
        with self._closed_by_errors():
            plan = self.plan = self.transport.wait_until_ready()
            self.door = Door(self.config, self.tokenizer, plan, self.default_params, self.parsings)
            logs.say(start_table(self.config, plan, logs.columns()), quiet=self.is_quiet)
            if (words := end_tokens.notice(self.tokenizer.end_tokens, plan.vocab_size)) is not None:
                logs.say(words, quiet=self.is_quiet)

    @contextmanager
    def _closed_by_errors(self) -> Iterator[None]:
        """Close the tree on any error: until it is ready nobody else does."""
        try:
            yield
        except BaseException:
            self.transport.close()
            raise

    def _close_beside(self) -> None:
        """Close what ends with the tree."""
        self.threads.close()
        self.templates.close()

    def render(
        self,
        conversation: Messages,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> str:
        check_template_options(template_options)
        text: str = self.tokenizer.apply_chat_template(
            conversation,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            tools=tools,
            chat_template=chat_template or self.chat_template,
            **(template_options or {}),
        )
        return text

    def render_batch(
        self,
        conversations: Iterable[Messages],
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[RenderedPrompt | RequestError]:
        """One prompt per conversation; one that its template refuses becomes the refusal."""
        check_tools(tools)
        check_template_options(template_options)
        prompts: list[RenderedPrompt | RequestError] = []
        schemas = argument_schemas(tools)
        for conversation in conversations:
            try:
                check_conversation(conversation)
                text = self.render(conversation, chat_template, tools, template_options=template_options)
                prompts.append(RenderedPrompt(text, schemas))
            except RequestError as error:
                prompts.append(error)
            except RecursionError:
                prompts.append(RequestError("The conversation is nested too deep."))
            except PenstockError:  # of the call: a template that isn't there
                raise
            except Exception as error:  # of a value whose own methods fail
                prompts.append(RequestError(f"This conversation can't be rendered: {type(error).__name__}."))
        return prompts

    def render_model_template(self, turns: Sequence[TemplateInput]) -> list[str | RequestError]:
        """Render with the model's own template, in a process with limits, for clients who share this process."""
        found: dict[int, str | RequestError] = {}
        for has_tools in {bool(turn.tools) for turn in turns}:
            places = [place for place, turn in enumerate(turns) if bool(turn.tools) is has_tools]
            group = [turns[place] for place in places]
            try:
                template = self.tokenizer.template(self.chat_template, has_tools=has_tools)
                texts = self.templates.render(template, self.tokenizer.special_tokens, group, self.door.most_characters)
            except RequestError as error:
                texts = [error] * len(group)
            found.update(zip(places, texts, strict=True))
        return [found[place] for place in range(len(turns))]

    def render_request_template(self, template: str, turns: Sequence[TemplateInput]) -> list[str | RequestError]:
        """Render with a template that came with a request (its text, or a name of the model's), in another process."""
        named = self.tokenizer.chat_template
        text = named.get(template, template) if isinstance(named, dict) else template
        return render_request_template(text, self.tokenizer.special_tokens, turns, self.door.most_characters)
