"""Turns the caller's prompts into requests for the daemon, which does the rest: tokenizing, checks, seeds."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....protocol.attach import Attached, WireConversation, WireRequest
from ....protocol.errors import RequestError
from ....protocol.files.model_file import read_model_text
from ....protocol.parameters.pooling import PoolingParams
from ....protocol.parameters.sampling import SamplingParams
from ...media.sources.encoded_media import packed_media
from ...media.sources.parts import take_media
from ...requests.conversation_checks import check_conversation
from ...requests.plain_types import plain, well_formed
from ...requests.prompts import NO_SIGHT, Conversation, ParsedPrompt, packed_prompt, require_fitting
from ...requests.request import EarlierAnswers, Notify
from ...requests.tool_schemas import tool_schema
from .request import AttachedPooledRequest, AttachedRequest


class AttachedDoor:
    def __init__(self, attached: Attached, longest_pooled: Callable[[], int]) -> None:
        """`longest_pooled` returns the most tokens of a prompt that ends in numbers."""
        self.attached = attached
        self._longest_pooled = longest_pooled
        self.replay: EarlierAnswers | None = None  # read here: the daemon gets token ids alone
        self._numbers = itertools.count()

    @property
    def defaults(self) -> SamplingParams:
        return self.attached.defaults

    def admit(
        self, prompts: Sequence[ParsedPrompt], notify: Notify, *, is_streamed: bool = False
    ) -> list[AttachedRequest]:
        """Make a request for each prompt; one that cannot be sent is refused already."""
        if self.replay is not None:
            self.replay.prepare(prompts)
        return [self._admit_one(prompt, notify, is_streamed) for prompt in prompts]

    def _admit_one(self, prompt: ParsedPrompt, notify: Notify, is_streamed: bool) -> AttachedRequest:
        wire = WireRequest(
            next(self._numbers),
            0,
            is_streamed=is_streamed,
            said=list(prompt.said),
            seed=prompt.seed,
            delta_tokens=prompt.delta_tokens,
            second_text=prompt.second_text,
            expected=[packed[: 4 * self.attached.plan.max_model_len] for packed in prompt.expected],
        )
        request = (AttachedRequest if prompt.pooled is None else AttachedPooledRequest)(prompt, wire, notify)
        try:
            if prompt.refusal:
                raise RequestError(prompt.refusal)
            if prompt.receipt is not None:
                wire.receipt = prompt.receipt.text()
                if not prompt.has_media:
                    return request
            # The check of a conversation refuses media that the model can't see.
            if prompt.has_media and (self.attached.plan.media is not None or prompt.conversation is None):
                prompt = self._opened(prompt, wire)
                request.media_bytes = len(wire.media)
            if prompt.conversation is not None:
                wire.conversation = on_the_wire(prompt.conversation, sees=bool(wire.media))
            elif prompt.token_ids is not None:
                wire.token_ids = self._packed(prompt.token_ids, prompt.pooled)
            elif prompt.text is not None:
                wire.text = well_formed(prompt.text)
        except RequestError as error:
            request.refuse(str(error))
        except RecursionError:
            request.refuse("The conversation is nested too deep.")
        except Exception as error:  # a value whose own methods fail
            request.refuse(f"This request can't be sent: {type(error).__name__}.")
        return request

    def _packed(self, ids: Sequence[int], pooled: PoolingParams | None) -> bytes:
        plan = self.attached.plan
        if pooled is not None and pooled.truncate_prompt_tokens is not None:
            most = plan.max_model_len
            ids = ids[-most:] if pooled.truncation_side == "left" else ids[:most]
        elif pooled is not None and pooled.logprob_token_ids is None:
            require_fitting(ids, pooled, self._longest_pooled())
        return packed_prompt(ids, plan, int(pooled is None))

    def _opened(self, prompt: ParsedPrompt, wire: WireRequest) -> ParsedPrompt:
        """Open the prompt's media here, in the caller's process; the daemon decodes them."""
        if self.attached.plan.media is None:
            raise RequestError(NO_SIGHT)
        if prompt.conversation is None:
            wire.media = packed_media(prompt.opened_media())
            return prompt
        messages, media = take_media(prompt.conversation.messages, may_open=True)
        wire.media = packed_media(media)
        return replace(prompt, conversation=replace(prompt.conversation, messages=messages))


def on_the_wire(conversation: Conversation, *, sees: bool = False) -> WireConversation:
    """A conversation in plain types; functions among the tools become schemas, a template's file becomes its text.

    If the model `sees`, the media have been taken out of the messages.
    """
    check_conversation(conversation.messages, sees=sees)
    tools = conversation.tools
    return WireConversation(
        _carried(conversation.messages),
        None if tools is None else [_carried(tool_schema(tool)) for tool in tools],
        _template(conversation.chat_template),
        _carried(conversation.template_options),
    )


def _carried(value: Any) -> Any:
    value = plain(value)
    return _well_formed_within(value)


def _well_formed_within(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, dict):
        return {_well_formed_within(key): _well_formed_within(item) for key, item in value.items()}
    return [_well_formed_within(item) for item in value] if isinstance(value, (list, tuple)) else value


def _template(chosen: str | None) -> str | None:
    """Read a template's file here, in the caller's process; a text or a template's name is sent unchanged."""
    if chosen is None or "{" in chosen or "\n" in chosen:
        return chosen
    path = Path(os.path.expanduser(chosen))
    return read_model_text(path) if os.path.isfile(path) else chosen
