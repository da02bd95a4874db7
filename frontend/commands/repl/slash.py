"""The commands of a chat: `/reset`, `/save FILE` and the like, as rows of a table.

Each takes the conversation and the rest of the line, and returns what to say. Knows nothing of screens.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ....protocol.errors import PenstockError
from ....protocol.suggestion import suggestion
from ..output import output_to
from .conversation import Answer, Conversation


class Leave(Exception):
    """The person wants to go."""


class Command(NamedTuple):
    argument: str  # as the help shows it
    sentence: str
    run: Callable[[Conversation, str], str]


def command_word(text: str) -> str | None:
    """The name of the command that this line is, known or not; None for a message."""
    word, _, _ = text.partition(" ")
    is_one_line = "\n" not in text
    return word if word in COMMANDS or (word.startswith("/") and is_one_line) else None


def run_command(conversation: Conversation, word: str, text: str) -> str:
    command = COMMANDS.get(word)
    if command is None:
        hint = suggestion(word, COMMANDS) or " /help lists them."
        return f'There is no command {word}.{hint} A message that begins with / goes between """ and """.'
    return command.run(conversation, text.removeprefix(word).strip())


def _help(conversation: Conversation, argument: str) -> str:
    rows = [(f"{word} {command.argument}".rstrip(), command.sentence) for word, command in COMMANDS.items()]
    rows += [
        ("\\ at the end", "the message goes on in the next line"),
        ('""" … """', "a message of several lines; so is a pasted block"),
        ("Ctrl-C, Ctrl-D", "stop the answer; leave"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {sentence}" for name, sentence in rows)


def _reset(conversation: Conversation, argument: str) -> str:
    conversation.reset()
    return "A new conversation" + (", with the same system text." if conversation.system else ".")


def _system(conversation: Conversation, argument: str) -> str:
    conversation.system = argument
    if not argument:
        return "There is no system text now."
    return "The system text holds from the next message on; /system alone removes it."


def _thinking(conversation: Conversation, argument: str) -> str:
    if argument not in ("on", "off"):
        return "Say /thinking on or /thinking off; it is for models whose chat template knows enable_thinking."
    conversation.template_options["enable_thinking"] = argument == "on"
    return f"Thinking is {argument} from the next message on, if the model's template has it."


def _save(conversation: Conversation, argument: str) -> str:
    if not argument:
        return "Say where to: /save FILE"
    path = Path(os.path.expanduser(argument))
    text = json.dumps(conversation.messages, ensure_ascii=False, indent=1) + "\n"
    try:
        if _holds_something_else(path):
            return f"{path} exists and is no saved conversation; it was left alone. Choose another name."
        with output_to(str(path)) as output:
            output.write(text)
    except OSError as error:
        return f"{path} was not written: {os.strerror(error.errno or 0)}."
    except PenstockError as error:
        return str(error)
    return f"{len(conversation.messages)} messages are in {path}, as LLM.chat takes them."


def _holds_something_else(path: Path) -> bool:
    """Only what is a list of messages already is written over."""
    if not path.exists() or (path.is_file() and not path.stat().st_size):
        return False
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        return True
    return not isinstance(held, list) or not all(isinstance(item, dict) and "role" in item for item in held)


def _stats(conversation: Conversation, argument: str) -> str:
    engine, answer = conversation.llm.stats(), conversation.answer
    rows = [
        ("last answer", _speed(answer) if answer and answer.num_output else "none yet"),
        ("its prompt", f"{answer.num_prompt:,} tokens, {answer.num_cached:,} of them cached" if answer else "none yet"),
        ("messages", f"{len(conversation.messages):,} in this conversation"),
        ("since start", f"{engine.prompt_tokens:,} prompt tokens ({engine.cached_tokens:,} from the prefix cache), "
                        f"{engine.generated_tokens:,} answered, {engine.steps:,} steps"),
        ("KV cache", f"{engine.blocks - engine.free_blocks:,} of {engine.blocks:,} blocks in use"),
    ]  # fmt: skip
    return "\n".join(f"{name:<12}  {text}" for name, text in rows)


def _speed(answer: Answer) -> str:
    total = f"{answer.num_output:,} tokens in {answer.seconds:.2f} s, the first after {answer.first_seconds:.2f} s"
    if answer.num_output < 2 or answer.seconds <= answer.first_seconds:
        return total
    return f"{total}, then {(answer.num_output - 1) / (answer.seconds - answer.first_seconds):,.1f} tokens/s"


def _quit(conversation: Conversation, argument: str) -> str:
    raise Leave


COMMANDS: dict[str, Command] = {
    "/reset": Command("", "start a new conversation", _reset),
    "/system": Command("TEXT", "what the model is told before everything else; nothing: remove it", _system),
    "/thinking": Command("on|off", "whether the model thinks first, if it can", _thinking),
    "/save": Command("FILE", "write the conversation as JSON", _save),
    "/stats": Command("", "tokens, speed and cache hits", _stats),
    "/help": Command("", "this list", _help),
    "/quit": Command("", "leave; so does Ctrl-D", _quit),
}
