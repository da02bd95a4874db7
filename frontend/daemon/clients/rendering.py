"""Renders clients' conversations as text, by the model's own chat template or by one that the client sends.

Templates run in separate processes. Threads wait for them: some for the model's template, others for templates of
clients.
"""

import asyncio
from collections import defaultdict
from collections.abc import Hashable, Sequence

from ....protocol.attach import WireConversation
from ....protocol.errors import RequestError
from ...requests.prompts import RenderedPrompt
from ...session.private import PrivateSession
from ...text.template_input import TemplateInput

Text = str | RequestError

# Conversations of one client rendered at a time, before another client's turn.
_GROUP = 32


async def rendered(
    session: PrivateSession,
    conversations: Sequence[WireConversation],
    client: Hashable,
    *,
    add_generation_prompt: bool = True,
) -> list[RenderedPrompt | RequestError]:
    """The texts, in the order of the conversations; those with the same template go to one process together."""
    by_template: dict[str | None, list[int]] = defaultdict(list)
    texts: dict[int, Text] = {}
    for index, wire in enumerate(conversations):
        if (refusal := _misspelt_option(session, wire)) is not None:
            texts[index] = refusal
        else:
            by_template[wire.chat_template].append(index)

    async def render(template: str | None, indices: list[int]) -> None:
        turns = [
            session.template_input(
                wire.messages, wire.tools, wire.options, adds_generation_prompt=add_generation_prompt
            )
            for wire in (conversations[index] for index in indices)
        ]
        found = await _in_threads(session, template, turns, client)
        texts.update(zip(indices, found, strict=True))

    await asyncio.gather(
        *(
            render(template, indices[start : start + _GROUP])
            for template, indices in by_template.items()
            for start in range(0, len(indices), _GROUP)
        )
    )
    return [
        RenderedPrompt(text, wire.tools or ()) if isinstance(text := texts[index], str) else text
        for index, wire in enumerate(conversations)
    ]


def _misspelt_option(session: PrivateSession, wire: WireConversation) -> RequestError | None:
    """The refusal of an option that is nearly one that the model's own template reads."""
    if wire.chat_template is not None or not wire.options:
        return None
    try:
        session.unread_template_options(wire.options, wire.tools)
    except RequestError as error:
        return error
    return None


async def _in_threads(
    session: PrivateSession, template: str | None, turns: list[TemplateInput], client: Hashable
) -> list[Text]:
    if template is None:
        return await session.threads.templates.run(session.render_model_template, turns, client=client)
    return await session.threads.request_templates.run(session.render_request_template, template, turns, client=client)
