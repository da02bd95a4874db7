"""/tokenize and /detokenize: a text's tokens, and the text of tokens.

Both run in threads, so that streams continue meanwhile. A text may have as many characters as a prompt of the model. A
conversation's pictures and videos are decoded, since their number of tokens is known only then.
"""

from collections.abc import Sequence

from ...requests.prompts import ParsedPrompt, RenderedPrompt
from ..answers.errors import ApiError
from ..answers.generation import check_length
from ..answers.reply import Reply
from ..endpoint import Call
from ..loaded_model import LoadedModel
from ..requests.conversation import as_messages, as_tools, rendered, template_options
from ..schemas.chat import ChatMessage
from ..schemas.others import DetokenizeReply, DetokenizeRequest, TokenizeReply, TokenizeRequest

# Memory of a token in a list and in JSON, as a number and as a string.
_TOKEN_BYTES, _STRING_BYTES = 56, 140


async def tokenize(call: Call, request: TokenizeRequest) -> Reply:
    if (request.prompt is None) == (request.messages is None):
        raise ApiError(400, "Give either prompt or messages.", param="prompt")
    async with call.model(request.model) as model:
        if request.messages is None:
            threads = model.threads.texts
        else:
            threads = model.threads.media if _has_media(request.messages) else model.threads.templates
        return await call.done(threads, _tokens, call, request, model, takes_long=True)


def _has_media(messages: Sequence[ChatMessage]) -> bool:
    parts = (part for message in messages if isinstance(message.content, list) for part in message.content)
    return any(part.text is None for part in parts)


def _tokens(call: Call, request: TokenizeRequest, model: LoadedModel) -> Reply:
    if request.prompt is not None:
        check_length("prompt", request.prompt, model)
        tokens = list(model.tokenizer.encode(request.prompt, request.add_special_tokens is not False))
    else:
        tokens = list(_tokens_of_conversation(call, request, model))
    call.charge.grow((_STRING_BYTES if request.return_token_strs else _TOKEN_BYTES) * len(tokens))
    strings = [model.tokenizer.decode_token(token) for token in tokens] if request.return_token_strs else None
    return Reply.of(
        TokenizeReply(count=len(tokens), max_model_len=model.max_model_len, tokens=tokens, token_strs=strings)
    )


def _tokens_of_conversation(call: Call, request: TokenizeRequest, model: LoadedModel) -> Sequence[int]:
    """Tokens of a conversation, with as many for each medium as in a prompt to be answered."""
    tools = as_tools(request.tools) or None
    model.check_template_options(request.chat_template_kwargs, tools)
    prompt = rendered(
        model,
        as_messages(request.messages or []),
        tools,
        template_options(request.chat_template_kwargs),
        adds_generation_prompt=request.add_generation_prompt,
    )
    return _tokens_of_prompt(call, prompt, model, adds_special_tokens=bool(request.add_special_tokens))


def count_of_prompt(call: Call, prompt: RenderedPrompt, model: LoadedModel) -> int:
    """Return the length of a conversation's prompt, with the tokens of its media."""
    return len(_tokens_of_prompt(call, prompt, model, adds_special_tokens=False))


def _tokens_of_prompt(
    call: Call, prompt: RenderedPrompt, model: LoadedModel, *, adds_special_tokens: bool
) -> Sequence[int]:
    check_length("messages", prompt.text, model)
    call.charge.grow(sum(len(medium.data) for medium in prompt.media))
    placed = ParsedPrompt(prompt.text, None, model.defaults, is_chat=True, media=prompt.media)
    if (media := model.session.door.media) is not None:
        [placed] = media.placed([placed])
    if placed.refusal is not None:
        raise ApiError(400, placed.refusal, param="messages")
    if placed.token_ids is None:
        return model.tokenizer.encode(placed.text or "", adds_special_tokens)
    if adds_special_tokens:
        raise ApiError(
            400,
            "A conversation with media has the special tokens of its template; leave this out.",
            param="add_special_tokens",
        )
    return placed.token_ids


async def detokenize(call: Call, request: DetokenizeRequest) -> Reply:
    async with call.model(request.model) as model:
        return await call.done(model.threads.answers, _text, request, model)


def _text(request: DetokenizeRequest, model: LoadedModel) -> Reply:
    check_length("tokens", request.tokens, model)
    if (highest := max(request.tokens, default=0)) >= (size := len(model.tokenizer)):
        raise ApiError(400, f"Token id {highest} is not in the vocabulary (0 to {size - 1}).", param="tokens")
    return Reply.of(DetokenizeReply(prompt=model.tokenizer.decode(request.tokens, False)))
