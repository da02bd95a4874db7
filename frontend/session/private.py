"""A model opened in its own process tree, with its tokenizer, its door and its templates.

The daemon opens its models this way, too. For its clients it renders templates in separate processes.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...protocol.errors import ConfigError, PenstockError, RequestError
from ...protocol.fields.rules import FLAG
from ...protocol.media import MediaPlan
from ...protocol.options.config import EngineConfig
from ...protocol.options.foreign_options import notices
from ...protocol.options.plugins import LOGITS_PROCESSORS, require_installed
from ..console import logs
from ..console.start_table import start_words
from ..media.door import MediaDoor
from ..media.sight import Sight
from ..media.sources.parts import bare_media, take_media
from ..models.draft_model import check_vocabulary, with_draft_model
from ..models.facts import ModelFacts, facts_of
from ..models.file_stamps import FileStamps
from ..models.generation_config import default_params
from ..models.model_files import find_model
from ..models.pooled_model import PooledModel, find_pooled_model
from ..parsing import Parsings, settled
from ..receipts.door import ReceiptDoor
from ..requests.conversation_checks import check_conversation, check_template_options
from ..requests.door import Door
from ..requests.pending_request import PendingRequest
from ..requests.plain_types import plain
from ..requests.prompts import (
    Conversation,
    Messages,
    RenderedPrompt,
    may_have_media,
)
from ..requests.tool_schemas import check_tools, tool_schema
from ..text import end_tokens
from ..text.chat_templates import chat_templates, special_tokens
from ..text.template_input import TemplateInput
from ..text.template_process import BoundedRenderer, TemplateProcesses, render_request_template
from .adapters import Adapters
from .engine_transport import EngineTransport
from .session import Session
from .threads import ModelThreads
from .tree.going_on import decoded_again
from .tree.transport import TreeTransport
from .tree.tree import Tree

if TYPE_CHECKING:
    from ..replicas.adapters import ReplicaAdapters


class PrivateSession(Session[PendingRequest]):
    """Call `start` and `read_tokenizer` in either order, then `wait_until_ready` before the first request."""

    transport: EngineTransport
    door: Door
    adapters: "Adapters | ReplicaAdapters"

    def __init__(self, model: str | os.PathLike[str], options: dict[str, Any]) -> None:
        """Find the model and read the files next to its weights; start nothing yet."""
        self.plan = None
        self.daemon = None
        self.sight: Sight | None = None  # for a vision model, once the tokenizer is read
        self.model_stamps: FileStamps = frozenset()  # if the daemon has opened it
        self._unread: set[str] = set()  # options already reported as not read by the template
        self.config = EngineConfig.from_options(model, **options)
        require_installed("logits_processors", LOGITS_PROCESSORS, self.config.logits_processors or ())
        self.is_quiet = logs.is_quiet(self.config.quiet)
        for notice in notices(options):
            logs.say(notice, quiet=self.is_quiet)
        logs.say_places_once(quiet=self.is_quiet)
        self.files = find_model(self.config.model, self.config.tokenizer, self.config.revision, is_quiet=self.is_quiet)
        self.files = with_draft_model(self.files, self.config)
        if (pooled := find_pooled_model(self.files.folder, self.config.runner)) is not None:
            self.files = replace(self.files, pooled=pooled)
            self.config = msgspec.structs.replace(self.config, runner="pooling")
        self.default_params = default_params(self.files.folder)
        for notice in Sight.check(self.files.folder, self.config):
            logs.say(notice, quiet=self.is_quiet)
        self.chat_template = _template_text(self.config.chat_template)
        # Before the tree starts: its detokenizer must know which marks to show.
        folder = self.files.tokenizer_folder
        template = self.chat_template or chat_templates(folder)
        self.config = settled(self.config, template, partial(special_tokens, folder))
        self.parsings = Parsings.of(self.config, template)

    @property
    def tree_config(self) -> EngineConfig:
        return self.config

    @property
    def pooled(self) -> PooledModel | None:
        return self.files.pooled

    @property
    def model_folders(self) -> tuple[Path, Path]:
        return self.files.folder, self.files.tokenizer_folder

    @classmethod
    def open(cls, model: str | os.PathLike[str], options: dict[str, Any], tree: Tree | None = None) -> "PrivateSession":
        """Open a model, in a tree that was started before if there is one; its children load while this process reads
        the tokenizer."""
        session = cls(model, options)
        session.start(tree)
        with session._closed_by_errors():
            session.read_tokenizer()
        session.transport.reached("tokenizer")
        return session

    def read_tokenizer(self) -> None:
        from ..text.tokenizer import Tokenizer  # once the children are starting

        self.tokenizer = Tokenizer(self.files.tokenizer_folder, self.files.folder)
        if self.files.draft_folder is not None:
            check_vocabulary(self.tokenizer, self.files)
        if self.config.enable_mm is not False:
            limits, arguments = self.config.limit_mm_per_prompt, self.config.mm_processor_kwargs
            self.sight = Sight.of(self.files.folder, self.tokenizer, limits, arguments)

    def start(self, tree: Tree | None = None) -> None:
        """Start the children, or launch those of `tree`; called again if the memory that they found was not enough."""
        self.threads = ModelThreads()
        self.templates = TemplateProcesses()
        if self.sight is not None:
            self.sight.open()
        if self.config.data_parallel_size > 1:
            from ..replicas.replicas import Replicas  # few models have several trees

            decode_again = partial(decoded_again, self)
            self.transport = replicas = Replicas(self.config, self.files, self.parsings.shown, decode_again)
            self.adapters = replicas.adapters
        else:
            self.transport = TreeTransport(self.config, self.files, self.parsings.shown, tree)
            self.adapters = Adapters(self.config, self.transport)
        self.transport.on_close = self._close_beside

    def wait_until_ready(self) -> None:
        with self._closed_by_errors():
            self._read_replay()  # while the tree loads
            plan = self.plan = self.transport.wait_until_ready()
            self.door = Door(self.config, self.tokenizer, plan, self.default_params, self.parsings)
            find_facts = partial(facts_of, plan, self.config, *self.model_folders)
            facts = ModelFacts(find_facts, self.adapters.loaded.get)
            self.door.receipts = ReceiptDoor(facts, self.config, plan)
            if self.files.pooled is not None:
                from ..pooling.door import PoolingDoor  # few models need it

                self.door.pooling = PoolingDoor(self.files.pooled, plan)
            self._let_media_in(plan.media)
            self._take_up_replay()
            words = start_words(self.config, plan, logs.columns(), self.files.pooled, is_verbose=logs.is_verbose())
            logs.say(words, quiet=self.is_quiet)
            if (notice := end_tokens.notice(self.tokenizer.end_tokens, plan.vocab_size)) is not None:
                logs.say(notice, quiet=self.is_quiet)

    def _let_media_in(self, encoder: MediaPlan | None) -> None:
        """Let requests have media, if the worker has an encoder, too."""
        if encoder is None and self.config.enable_mm:
            raise ConfigError("enable_mm=True: this model's encoder is not supported yet; leave it out for text alone.")
        if encoder is None and self.sight is not None:
            self.sight.close()
            self.sight = None
        if self.sight is not None:
            self.sight.open(encoder)
            most = self.door.most_characters
            self.door.media = MediaDoor(self.sight, self._render_seen, most, self.door.plan.max_model_len)

    @property
    def stamps(self) -> FileStamps:
        """Of the files that its tree has read, if the daemon has opened it."""
        return self.model_stamps.union(*self.adapters.stamps.values())

    @property
    def media_kinds(self) -> list[str]:
        """The kinds of media that the loaded model accepts: images, videos."""
        return [] if self.sight is None else [kind for kind, most in self.sight.limits.items() if most]

    @contextmanager
    def _closed_by_errors(self) -> Iterator[None]:
        """Close the tree on any error: until it is ready, nobody else does."""
        try:
            yield
        except BaseException:
            self.transport.close()
            raise

    def _close_beside(self) -> None:
        """Close everything that ends with the tree."""
        if self.replay is not None:
            self.replay.close()
        self.threads.close()
        self.close_helpers()

    def close_helpers(self) -> None:
        """End the processes that render templates and decode media."""
        self.templates.close()
        if self.sight is not None:
            self.sight.close()

    def render(
        self,
        conversation: Messages,
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        add_generation_prompt: bool = True,
        template_options: Mapping[str, Any] | None = None,
    ) -> str:
        add_generation_prompt = FLAG.checked("add_generation_prompt", add_generation_prompt, RequestError)
        self._check_options(template_options, chat_template, tools)
        messages = conversation if self.sight is None else bare_media(conversation)
        text = self._text(messages, chat_template, tools, template_options, adds=add_generation_prompt)
        return text if self.sight is None else self.sight.without_cuts(text)

    def _check_options(
        self, options: Mapping[str, Any] | None, chat_template: str | None, tools: Sequence[Any] | None
    ) -> None:
        """Refuse options that a template can't be given, and report once those that it doesn't read."""
        check_template_options(options)
        if not options:
            return
        for name in self.unread_template_options(options, tools, chat_template):
            if name not in self._unread:
                self._unread.add(name)
                words = f"chat_template_kwargs: {name} has no effect: the chat template doesn't read it."
                logs.say(words, quiet=self.is_quiet)

    def unread_template_options(
        self, options: Mapping[str, Any], tools: Sequence[Any] | None, chat_template: str | None = None
    ) -> list[str]:
        """The options that a template, by default the model's own, doesn't read; raises for one that is misspelt."""
        from ..text.template_options import unread_options  # imports jinja2

        template = self.tokenizer.template(chat_template or self.chat_template, has_tools=bool(tools))
        return unread_options(template, options)

    def _text(
        self,
        messages: Messages,
        chat_template: str | None,
        tools: Sequence[Any] | None,
        template_options: Mapping[str, Any] | None,
        *,
        adds: bool = True,
    ) -> str:
        """A conversation's text, split where somebody typed a placeholder for media; the media themselves have been
        removed."""
        options = dict(template_options or {})
        if self.sight is not None:
            messages, options = self.sight.split_messages(plain(messages)), self.sight.split_typed(plain(options))
            tools = None if tools is None else self.sight.split_typed([plain(tool_schema(tool)) for tool in tools])
        return BoundedRenderer(self.templates, self.door.most_characters)(
            self.tokenizer.template(chat_template or self.chat_template, has_tools=bool(tools)),
            messages,
            tools=tools,
            documents=options.pop("documents", None),
            add_generation_prompt=adds,
            continue_final_message=options.pop("continue_final_message", False),
            special_tokens=self.tokenizer.special_tokens,
            arguments=options,
            sees=self.sight is not None,
        )

    def _render_seen(self, conversation: Conversation) -> RenderedPrompt:
        """Open the media of this process's own conversation, and render it with a placeholder for each."""
        messages, media = take_media(conversation.messages, may_open=True)
        tools, options = conversation.tools, conversation.template_options
        text = self._text(messages, conversation.chat_template, tools, options)
        return RenderedPrompt(text, tools or (), media)

    def render_batch(
        self,
        conversations: Iterable[Messages],
        chat_template: str | None = None,
        tools: Sequence[Any] | None = None,
        template_options: Mapping[str, Any] | None = None,
    ) -> list[RenderedPrompt | RequestError | Conversation]:
        """One prompt per conversation; if its template refuses it, the refusal. One with media is rendered when its
        turn comes."""
        if tools is not None:
            check_tools(tools)
            tools = [tool_schema(tool) for tool in tools]
        self._check_options(template_options, chat_template, tools)
        prompts: list[RenderedPrompt | RequestError | Conversation] = []
        for conversation in conversations:
            try:
                if self.sight is not None and may_have_media(conversation):
                    prompts.append(Conversation(conversation, tools, chat_template, template_options or {}))
                    continue
                if self.sight is not None:  # which takes copies of what the renderer would check
                    check_conversation(conversation)
                text = self._text(conversation, chat_template, tools, template_options)
                prompts.append(RenderedPrompt(text, tools or (), messages=conversation))
            except RequestError as error:
                prompts.append(error)
            except RecursionError:
                prompts.append(RequestError("The conversation is nested too deep."))
            except PenstockError:  # an error of the whole call: a missing template
                raise
            except Exception as error:  # a value whose own methods fail
                prompts.append(RequestError(f"This conversation can't be rendered: {type(error).__name__}."))
        return prompts

    def template_input(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None,
        options: Mapping[str, Any],
        *,
        adds_generation_prompt: bool = True,
    ) -> TemplateInput:
        """A client's conversation, in plain types and without its media, for the methods below. Texts are split
        where somebody typed a placeholder for media."""
        given = None if tools is None else list(tools)
        turn = TemplateInput(list(messages), given, dict(options), adds_generation_prompt)
        if self.sight is not None:
            turn.messages, turn.tools = self.sight.split_messages(turn.messages), self.sight.split_typed(turn.tools)
            turn.options, turn.sees = self.sight.split_typed(turn.options), True
        return turn

    def render_model_template(self, turns: Sequence[TemplateInput]) -> list[str | RequestError]:
        """Render with the model's own template, in a process with limits, for clients who share this process."""
        found: dict[int, str | RequestError] = {}
        for has_tools in {bool(turn.tools) for turn in turns}:
            indices = [index for index, turn in enumerate(turns) if bool(turn.tools) is has_tools]
            group = [turns[index] for index in indices]
            try:
                template = self.tokenizer.template(self.chat_template, has_tools=has_tools)
                texts = self.templates.render(template, self.tokenizer.special_tokens, group, self.door.most_characters)
            except RequestError as error:
                texts = [error] * len(group)
            found.update(zip(indices, texts, strict=True))
        return [found[index] for index in range(len(turns))]

    def render_request_template(self, template: str, turns: Sequence[TemplateInput]) -> list[str | RequestError]:
        """Render in another process with a template sent with a request (its text, or a name of the model's)."""
        named = self.tokenizer.chat_template
        text = named.get(template, template) if isinstance(named, dict) else template
        return render_request_template(text, self.tokenizer.special_tokens, turns, self.door.most_characters)


def _template_text(option: str | None) -> str | None:
    if not option:
        return None
    from ..text.chat import template_text  # imports jinja2

    return template_text(option)
