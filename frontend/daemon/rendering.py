"""Conversations of clients as text: by the model's own template here, by one that they bring in another process.

Blocks; runs in threads. Knows nothing of who asks.
"""

from collections import defaultdict
from collections.abc import Sequence

from ...protocol.attach import AskedConversation
from ...protocol.errors import RequestError
from ..asked import Rendered
from ..brought_template import Turn
from ..session import Session
from ..tool_schemas import argument_schemas


def rendered(
    session: Session, conversations: Sequence[AskedConversation], *, add_generation_prompt: bool = True
) -> list[Rendered | RequestError]:
    """In their order; those with the same template go to one process together."""
    found: list[Rendered | RequestError | None] = [None] * len(conversations)
    brought: dict[str, list[int]] = defaultdict(list)
    for place, wire in enumerate(conversations):
        if wire.chat_template is not None:
            brought[wire.chat_template].append(place)
            continue
        found[place] = _by_own_template(session, wire, add_generation_prompt)
    for template, places in brought.items():
        turns = [
            Turn(wire.messages, wire.tools, wire.options, add_generation_prompt)
            for wire in (conversations[place] for place in places)
        ]
        for place, text in zip(places, session.render_brought(template, turns), strict=True):
            tools = argument_schemas(conversations[place].tools)
            found[place] = Rendered(text, tools) if isinstance(text, str) else text
    return found  # type: ignore[return-value]


def _by_own_template(session: Session, wire: AskedConversation, add_generation_prompt: bool) -> Rendered | RequestError:
    options = {"tools": wire.tools, "template_options": wire.options}
    try:
        [found] = session.rendered([wire.messages], add_generation_prompt=add_generation_prompt, **options)
    except Exception as error:  # a template's, of values that it wasn't written for: it ends this request alone
        return RequestError(f"This conversation can't be rendered: {type(error).__name__}: {error}")
    return found
