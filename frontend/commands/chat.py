"""Chat with a model. Each line is a message; the answer is printed as it is generated, and Ctrl-C stops it. Lines that
begin with / are commands: /help lists them, Tab completes them. In a pipe each line of standard input is a message,
and only the answers go to standard output.

Engine and sampling options are those of `generate`.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial

from ...protocol.options.config import EngineConfig
from ...protocol.parameters.sampling import SamplingParams
from .repl.conversation import AnswerDelta, Conversation
from .repl.model import ChatModel, ChatState
from .repl.parameters import NO_USE_HERE
from .repl.pipe import Pipe
from .repl.slash import Leave, command_word, completions, run_command
from .repl.terminal import Terminal
from .shared.model_options import checked_options, require_model
from .shared.options import add_options, add_verbose, obey_verbose
from .shared.termination import orderly_termination

USAGE = "[MODEL] [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", default="pocket", help="bundled name, folder, or hub id (pocket)"
    )
    # For people who are used to `ollama run MODEL "a prompt"`.
    parser.add_argument("prompts", nargs="*", default=[], help=argparse.SUPPRESS)
    add_verbose(parser)
    add_options(parser, "sampling options", SamplingParams, leave_out=NO_USE_HERE)
    add_options(parser, "engine options", EngineConfig, leave_out=("model",))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if arguments.prompts:
        advice = f'`penstock generate {arguments.model} "…"` answers one prompt'
        parser.error(f"a chat reads messages line by line; {advice}")
    if sys.stdin is None or sys.stdout is None:
        parser.error("standard input or output is closed, and a chat needs both")
    obey_verbose(arguments)
    config, options, chosen = checked_options(arguments, parser)
    require_model(config)
    for stream in (sys.stdin, sys.stdout):  # a stray byte or character is shown as such and ends nothing
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    # If either end is a pipe, readline would write its marks into it.
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with orderly_termination(), ChatModel(arguments.model, options) as model:
        chat = ChatState.begun(model, chosen)
        with Terminal(partial(completions, chat)) if is_terminal else Pipe() as screen:
            screen.welcome()
            return _talk(chat, screen)


def _talk(chat: ChatState, screen: Terminal | Pipe) -> int:
    """Chat until the end of input or /quit. Exit status 1 if any message was refused."""
    refused = 0
    while True:
        try:
            typed = screen.read()
            word = command_word(typed.text) if typed.may_be_command else None
            if word is not None:
                refused += not _done(chat, screen, word, typed.text)
            elif typed.text.strip():
                refused += not _answered(chat.conversation, screen, chat.conversation.ask(typed.text))
        except (EOFError, Leave):
            return 1 if refused else 0


def _done(chat: ChatState, screen: Terminal | Pipe, word: str, text: str) -> bool:
    reply: str | Iterator[AnswerDelta] = ""
    with screen.interruptible():
        reply = run_command(chat, word, text)
    if isinstance(reply, str):
        if reply:
            screen.say(reply)
        return True
    return _answered(chat.conversation, screen, reply)


def _answered(conversation: Conversation, screen: Terminal | Pipe, answer: Iterator[AnswerDelta]) -> bool:
    with closing(answer) as pieces:  # type: ignore[type-var]  # a generator
        screen.show(pieces)
    if remark := conversation.remark():
        screen.remark(remark)
    return conversation.answer is None or conversation.answer.error is None
