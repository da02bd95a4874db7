"""The commands of a chat: `/reset`, `/save FILE` and the like, as rows of a table.

Each takes the chat's state and the rest of the line, and returns a reply or a streamed answer.
"""

import mimetypes
import os
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from ....protocol.errors import PenstockError, RequestError
from ....protocol.fields.rules import shown
from ....protocol.fields.suggestion import suggestion
from ....protocol.media import MediumKind
from ....protocol.stats import Stats
from ...console.printable import aligned
from ...llm import LLM
from ...media.sources.encoded_media import EncodedMedium
from ...media.sources.source import encoded
from . import files
from .completion import folders, paths
from .content import shown_content
from .conversation import Answer, AnswerDelta
from .files import unquoted
from .model import ChatState, known_models
from .parameters import PARAMETERS, named, values


class Leave(Exception):
    """The user wants to leave."""


def _nothing(chat: ChatState, argument: str) -> Iterable[str]:
    return ()


class Command(NamedTuple):
    argument: str  # as shown by the help
    sentence: str
    run: Callable[[ChatState, str], str | Iterator[AnswerDelta]]
    complete: Callable[[ChatState, str], Iterable[str]] = _nothing  # completions of an argument's beginning


def command_word(text: str) -> str | None:
    """The name of the command in this line, known or not; None for a message."""
    word, _, _ = text.partition(" ")
    is_one_line = "\n" not in text
    return word if word in COMMANDS or (word.startswith("/") and is_one_line) else None


def run_command(chat: ChatState, word: str, text: str) -> str | Iterator[AnswerDelta]:
    command = COMMANDS.get(word)
    if command is None:
        hint = suggestion(word, COMMANDS) or " /help lists them."
        return f'There is no command {word}.{hint} A message that begins with / goes between """ and """.'
    try:
        return command.run(chat, text.removeprefix(word).strip())
    except RequestError as error:
        return str(error)


def completions(chat: ChatState, line: str) -> list[str]:
    """The possible completions of a line's beginning; a message has none."""
    word, space, rest = line.partition(" ")
    if not space:
        found = (f"{name} " if command.argument else name for name, command in COMMANDS.items())
    elif word in COMMANDS:
        found = (f"{word} {argument}" for argument in COMMANDS[word].complete(chat, rest.lstrip()))
        line = f"{word} {rest.lstrip()}"
    else:
        return []
    return [each for each in found if each.startswith(line)] if line.startswith("/") else []


def _help(chat: ChatState, argument: str) -> str:
    rows = [(f"{word} {command.argument}".rstrip(), command.sentence) for word, command in COMMANDS.items()]
    rows += [
        ("\\ at the end", "the message goes on in the next line"),
        ('""" … """', "a message of several lines; so is a pasted block"),
        ("Tab, arrows", "complete a command and what follows it; earlier messages"),
        ("Ctrl-C, Ctrl-D", "stop the answer; leave"),
    ]
    return "\n".join(aligned(rows))


def _with_medium(kind: MediumKind, chat: ChatState, argument: str) -> str | Iterator[AnswerDelta]:
    """Add a picture or video to the next message; text after the file's name is asked at once."""
    if not argument:
        return f"Name a file: /{kind} FILE, optionally followed by a message"
    name, text = named_file(argument)
    medium = added_medium(chat.conversation.llm, kind, name)
    chat.conversation.added.append(medium.part)
    return chat.conversation.ask(text) if text else f"{medium.told}. It will be sent with the next message."


_image, _video = partial(_with_medium, "image"), partial(_with_medium, "video")


def _reset(chat: ChatState, argument: str) -> str:
    chat.conversation.reset()
    return "A new conversation" + (", with the same system prompt." if chat.conversation.system else ".")


def _system(chat: ChatState, argument: str) -> str:
    chat.conversation.system = argument
    if not argument:
        return "The system prompt is removed."
    return "The system prompt applies from the next message on; /system alone removes it."


def _thinking(chat: ChatState, argument: str) -> str:
    if argument not in ("on", "off"):
        return "Use /thinking on or /thinking off; it works for models whose chat template has enable_thinking."
    chat.conversation.template_options["enable_thinking"] = argument == "on"
    return f"Thinking is {argument} from the next message on, if the model's template has it."


def _save(chat: ChatState, argument: str) -> str:
    return files.save(chat.conversation, argument) if argument else "Name a file: /save FILE"


def _load(chat: ChatState, argument: str) -> str:
    return files.load(chat.conversation, argument) if argument else "Name a file: /load FILE"


def _retry(chat: ChatState, argument: str) -> str | Iterator[AnswerDelta]:
    return chat.conversation.retry() or "There is no message to ask again."


def _undo(chat: ChatState, argument: str) -> str:
    had_answer = chat.conversation.unanswered is None
    content = chat.conversation.undo()
    if content is None:
        return "There is no message to remove."
    left = files.messages_are(len(chat.conversation.messages))
    return f"Removed{' with its answer' if had_answer else ''}: {shown(shown_content(content))}. {left} left."


def _set(chat: ChatState, argument: str) -> str:
    name, _, value = (word.strip() for word in argument.replace("=", " ", 1).partition(" "))
    if not name:
        return chat.parameters.table()
    name = named(name)
    return chat.set(name, value) if value else chat.parameters.about(name)


def _values(chat: ChatState, argument: str) -> Iterator[str]:
    """Names of parameters and, after a name, its values."""
    name, space, _ = argument.partition(" ")
    if not space:
        return (f"{known} " for known in PARAMETERS)
    return (f"{name} {value}" for value in values(name.replace("-", "_")))


def _model(chat: ChatState, argument: str) -> str:
    if not argument:
        return "\n".join([f"This is {chat.model.name}. Others are:", *known_models(), "Any folder or hub id works."])
    argument, earlier = files.unquoted(argument), chat.model.name
    try:
        chat.change_model(argument)
    except KeyboardInterrupt:
        return f"Stopped; {earlier} is still used."
    except PenstockError as error:
        if not chat.model.is_open:  # no model is loaded
            raise
        return f"{error}\n{earlier} is still used."
    return f"{argument} answers from the next message on; the conversation continues."


def _models(chat: ChatState, argument: str) -> Iterator[str]:
    yield from known_models()
    yield from folders(argument)


def _stats(chat: ChatState, argument: str) -> str:
    conversation = chat.conversation
    engine, answer = conversation.llm.stats(), conversation.answer
    rows = [
        ("last answer", _speed(answer) if answer and answer.num_output else "none yet"),
        ("its prompt", f"{answer.num_prompt:,} tokens, {answer.num_cached:,} of them cached" if answer else "none yet"),
        ("messages", f"{len(conversation.messages):,} in this conversation"),
        ("since start", f"{engine.prompt_tokens:,} prompt tokens ({engine.cached_tokens:,} from the prefix cache), "
                        f"{engine.generated_tokens:,} output tokens, {engine.steps:,} steps"),
        *_drafts(engine),
        ("KV cache", f"{engine.blocks - engine.free_blocks:,} of {engine.blocks:,} blocks in use"),
    ]  # fmt: skip
    return "\n".join(f"{name:<12}  {text}" for name, text in rows)


def _drafts(engine: Stats) -> list[tuple[str, str]]:
    if not engine.draft_tokens:
        return []
    return [("drafts", f"{engine.draft_tokens:,} tokens, {engine.acceptance:.0%} of them accepted")]


def _speed(answer: Answer) -> str:
    total = f"{answer.num_output:,} tokens in {answer.seconds:.2f} s, the first after {answer.first_seconds:.2f} s"
    if answer.num_output < 2 or answer.seconds <= answer.first_seconds:
        return total
    return f"{total}, then {(answer.num_output - 1) / (answer.seconds - answer.first_seconds):,.1f} tokens/s"


def _quit(chat: ChatState, argument: str) -> str:
    raise Leave


def _of_paths(chat: ChatState, argument: str) -> Iterable[str]:
    return paths(argument)


def _on_or_off(chat: ChatState, argument: str) -> Iterable[str]:
    return ("on", "off")


COMMANDS: dict[str, Command] = {
    "/retry": Command("", "ask the last message again", _retry),
    "/undo": Command("", "remove the last message and its answer", _undo),
    "/reset": Command("", "start a new conversation", _reset),
    "/image": Command("FILE [TEXT]", "attach a picture to the next message, or to TEXT", _image, _of_paths),
    "/video": Command("FILE [TEXT]", "attach a video", _video, _of_paths),
    "/system": Command("TEXT", "set the system prompt; without TEXT, remove it", _system),
    "/thinking": Command("on|off", "turn thinking on or off, if the model supports it", _thinking, _on_or_off),
    "/set": Command("NAME VALUE", "set a sampling parameter; without arguments, list them", _set, _values),
    "/model": Command("NAME", "switch to another model; without NAME, list them", _model, _models),
    "/save": Command("FILE", "save the conversation as JSON", _save, _of_paths),
    "/load": Command("FILE", "continue a saved conversation", _load, _of_paths),
    "/stats": Command("", "show tokens, speed and cache hits", _stats),
    "/help": Command("", "show this list", _help),
    "/quit": Command("", "quit (or Ctrl-D)", _quit),
}


# --- pictures and videos ---------------------------------------------------------------------------------------------
# They are read from files named in a command. A message contains the file itself as a `data:` URL. So a saved
# conversation is complete, whatever happens to the file, and `LLM.chat` and the web page accept it unchanged.


class AddedMedium(NamedTuple):
    part: dict[str, Any]  # of a message
    told: str  # what the user is shown


def named_file(argument: str) -> tuple[str, str]:
    """Split into a file's name and the text after it. A name without quotes may contain spaces if there is such a
    file."""
    if argument[:1] in ("'", '"') and (end := argument.find(argument[0], 1)) > 0:
        return unquoted(argument[: end + 1]), argument[end + 1 :].strip()
    words = argument.split(" ")
    names = [" ".join(words[:count]) for count in range(len(words), 0, -1)]
    name = next((each for each in names if os.path.isfile(os.path.expanduser(each))), words[0])
    return name, argument[len(name) :].strip()


def added_medium(llm: LLM, kind: MediumKind, name: str) -> AddedMedium:
    """Read one of the user's files; raises `RequestError` if the model can't take it."""
    if not llm._session.sees:
        raise RequestError("This model sees no pictures and no videos; /model NAME continues with one that does.")
    medium = encoded(kind, name, may_open=True)
    told = f"{os.path.basename(name)}: {_size(len(medium.data))}{_tokens(llm, medium)}"
    media_type = mimetypes.guess_type(name)[0] or ""
    media_type = media_type if media_type.startswith(f"{kind}/") else "application/octet-stream"
    url = f"data:{media_type};base64,{b64encode(medium.data).decode()}"
    return AddedMedium({"type": f"{kind}_url", f"{kind}_url": {"url": url}}, told)


def _tokens(llm: LLM, medium: EncodedMedium) -> str:
    """How many tokens it takes; unknown to a daemon's client before the request."""
    sight = getattr(llm._session, "sight", None)
    if sight is None:
        return ""
    [decoded] = sight.read([medium])
    if isinstance(decoded, RequestError):
        raise decoded
    return f", {sight.family.num_rows(decoded):,} tokens"


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 10_000 else f"{count / 1000:,.0f} KB"
