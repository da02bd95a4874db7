"""/tokenize and /detokenize: a text's tokens, and the text of tokens.

Both run in threads, so that streams go on meanwhile. A text may have as many characters as a prompt of the model.
"""

from ..answers.errors import ApiError
from ..answers.generation import check_length
from ..answers.reply import Reply
from ..endpoint import Call
from ..loaded_model import LoadedModel
from ..requests.conversation import as_tools, rendered, template_options
from ..schemas.others import DetokenizeReply, DetokenizeRequest, TokenizeReply, TokenizeRequest

# Memory of a token in a list and in JSON, as a number and as a string.
_TOKEN_BYTES, _STRING_BYTES = 56, 140


async def tokenize(call: Call, request: TokenizeRequest) -> Reply:
    if (request.prompt is None) == (request.messages is None):
        raise ApiError(400, "Give either prompt or messages.", param="prompt")
    async with call.model(request.model) as model:
        threads = model.threads.texts if request.messages is None else model.threads.templates
        return await call.done(threads, _tokens, call, request, model, takes_long=True)


def _tokens(call: Call, request: TokenizeRequest, model: LoadedModel) -> Reply:
    text = request.prompt if request.prompt is not None else _conversation(request, model)
    check_length("prompt" if request.prompt is not None else "messages", text, model)
    adds = request.add_special_tokens
    adds = request.messages is None if adds is None else adds
    tokens = model.tokenizer.encode(text, adds)
    call.charge.grow((_STRING_BYTES if request.return_token_strs else _TOKEN_BYTES) * len(tokens))
    strings = [model.tokenizer.decode_token(token) for token in tokens] if request.return_token_strs else None
    return Reply.of(
        TokenizeReply(count=len(tokens), max_model_len=model.max_model_len, tokens=tokens, token_strs=strings)
    )


def _conversation(request: TokenizeRequest, model: LoadedModel) -> str:
    prompt = rendered(
        model,
        request.messages or [],
        as_tools(request.tools) or None,
        template_options(request.chat_template_kwargs),
        adds_generation_prompt=request.add_generation_prompt,
    )
    if prompt.media:
        raise ApiError(400, "/tokenize takes text alone; usage tells how many tokens a picture has.", param="messages")
    return prompt.text if model.session.sight is None else model.session.sight.without_cuts(prompt.text)


async def detokenize(call: Call, request: DetokenizeRequest) -> Reply:
    async with call.model(request.model) as model:
        return await call.done(model.threads.answers, _text, request, model)


def _text(request: DetokenizeRequest, model: LoadedModel) -> Reply:
    check_length("tokens", request.tokens, model)
    if (highest := max(request.tokens, default=0)) >= (size := len(model.tokenizer)):
        raise ApiError(400, f"Token id {highest} is not in the vocabulary (0 to {size - 1}).", param="tokens")
    return Reply.of(DetokenizeReply(prompt=model.tokenizer.decode(request.tokens, False)))
