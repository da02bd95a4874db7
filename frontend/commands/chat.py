"""Talk with a model. A line is a message; the answer comes as it is made, and Ctrl-C stops it. Through pipes each line
of standard input is a message, and the answers alone go to standard output.

Engine and sampling options are those of `generate`. Knows nothing of the tree behind `LLM`.
"""

import argparse
import sys
from contextlib import closing

from ...protocol.config import EngineConfig
from ...protocol.sampling import SamplingParams
from ..llm import LLM
from .chosen import checked_options, require_model, with_defaults
from .options import add_options
from .repl.conversation import Conversation
from .repl.pipe import Pipe
from .repl.slash import Leave, command_word, run_command
from .repl.terminal import Terminal

USAGE = "[MODEL] [options]"

# What makes no sense where one person reads one answer; the engine's own seed serves.
_NO_USE_HERE = ("seed", "frequence_penalty", "n", "logprobs", "prompt_logprobs", "detokenize", "priority")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", default="pocket", help="bundled name, folder, or hub id (pocket)"
    )
    add_options(parser, "sampling options", SamplingParams, leave_out=_NO_USE_HERE)
    add_options(parser, "engine options", EngineConfig, leave_out=("model",))


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    if sys.stdin is None or sys.stdout is None:
        parser.error("standard input or output is closed, and a chat needs both")
    config, options, chosen = checked_options(arguments, parser)
    require_model(config)
    for stream in (sys.stdin, sys.stdout):  # a stray byte or character is shown as such and ends nothing
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    # With either end in a pipe readline would write its marks into it.
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with LLM(arguments.model, **options) as llm, Terminal() if is_terminal else Pipe() as screen:
        screen.welcome()
        return _talk(Conversation(llm, with_defaults(llm, chosen)), screen)


def _talk(conversation: Conversation, screen: Terminal | Pipe) -> int:
    """Until the end of input or /quit. Exit status 1 if any message was refused."""
    refused = 0
    while True:
        try:
            typed = screen.read()
            word = command_word(typed.text) if typed.may_be_command else None
            if word is not None:
                screen.say(run_command(conversation, word, typed.text))
            elif typed.text.strip():
                refused += not _answered(conversation, screen, typed.text)
        except (EOFError, Leave):
            return 1 if refused else 0


def _answered(conversation: Conversation, screen: Terminal | Pipe, text: str) -> bool:
    with closing(conversation.ask(text)) as pieces:
        screen.show(pieces)
    if remark := conversation.remark():
        screen.remark(remark)
    return conversation.answer is None or conversation.answer.error is None
