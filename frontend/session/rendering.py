"""A session in this process renders conversations with the model's chat template: its own ones and those of clients."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...protocol.errors import PenstockError, RequestError
from ...protocol.fields.rules import FLAG
from ..console import logs
from ..media.sight import Sight
from ..media.sources.parts import bare_media, take_media
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
from ..text.template_input import TemplateInput
from ..text.template_process import BoundedRenderer, TemplateProcesses, render_request_template
from .session import Session


class RenderingSession(Session[PendingRequest]):
    door: Door
    templates: TemplateProcesses
    sight: Sight | None
    chat_template: str | None  # one that replaces the model's own
    _unread: set[str]  # options already reported as not read by the template

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
