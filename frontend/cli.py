"""The command `penstock`: a table of subcommands, and the handling of their errors.

A subcommand is a row here and a file in `commands/`, imported only when it is run. Exit status: 0, 1 for an error of
Penstock's, 2 for a wrong command line, 3 for a job with failed lines, 130 after Ctrl-C.
"""

import argparse
import errno
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import NamedTuple

from .. import __version__
from ..protocol.fields.suggestion import suggestion
from .console.command_line import CommandLine
from .console.standard_error import fill_closed_descriptors, settle_at_exit, write_line

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Group(NamedTuple):
    """A group of commands in the help, whose files are in one folder."""

    title: str
    room: str  # within `commands/`
    commands: dict[str, str]  # name → what it is for, in one line


GROUPS = (
    Group("use a model", "", {
        "generate": "complete prompts from arguments, standard input or a JSONL file",
        "batch": "answer a file of prompts through any interruption",
        "verify": "check that answers with receipts are what a model says",
        "chat": "chat with a model (also: `run`)",
        "tokenize": "show or count the tokens of a text",
    }),
    Group("vectors and scores", "numbers", {
        "embed": "embed a file of texts through any interruption",
        "rerank": "order the lines of a file by how well they fit a query",
    }),
    Group("models on this machine", "", {
        "models": "list the models here, and whether they fit in memory",
        "show": "show a model's details: family, memory, sampling defaults",
        "pull": "download models from the hub, or resume a download",
        "rm": "remove downloaded models from the cache",
        "convert": "write a quantized copy of a model, as safetensors or GGUF",
        "bench": "measure how fast a model runs on this machine",
    }),
    Group("daemon", "daemon", {
        "serve": "serve models to programs on this machine, over a socket and HTTP",
        "start": "serve models in the background",
        "stop": "stop the daemon, or unload one of its models",
        "reload": "make the daemon reload its configuration",
        "status": "show whether a daemon is running, and where",
        "ps": "show the daemon's models: memory, clients, queue, tokens per second",
        "top": "watch models at work: speed, memory, latency, requests",
        "worker": "run ranks of a model whose front end is on another machine",
        "logs": "show the log of the background daemon",
    }),
    Group("this machine", "", {
        "cache": "list or prune what is kept on disk: packed weights, prefixes, downloads",
        "doctor": "check this machine, and suggest what to fix",
        "completion": "print a shell completion script",
    }),
)  # fmt: skip
COMMANDS = {name: sentence for group in GROUPS for name, sentence in group.commands.items()}
SYNONYMS = {"run": "chat"}

_MODELS = "`penstock models` lists the models on this machine, `penstock ps` those that a daemon has loaded."
_TALK = '`penstock chat MODEL` chats with a model, `penstock generate MODEL "…"` answers one prompt.'
_PULL = "`penstock pull ID` downloads a model, as does any command that names one."
_REMOVE = "`penstock rm ID` removes a downloaded model."
_START = "`penstock start MODEL` serves a model in the background, `penstock serve MODEL` in the foreground."
_UNLOAD = "`penstock stop MODEL` unloads one of the daemon's models, `penstock stop` stops the daemon."

# A word used instead of a command, as in Ollama, LM Studio and vLLM → what to write instead.
ADVICE = {
    "ls": _MODELS,
    "list": _MODELS,
    "tags": _MODELS,
    "ask": _TALK,
    "complete": _TALK,
    "embeddings": "`penstock embed FILE --output vectors.npy --model MODEL` embeds a file of texts.",
    "score": "`penstock rerank QUERY FILE --model MODEL` scores the lines of a file.",
    "run-batch": "`penstock batch IN OUT --model MODEL` answers a file of prompts, also one of OpenAI's batches.",
    "download": _PULL,
    "get": _PULL,
    "remove": _REMOVE,
    "delete": _REMOVE,
    "server": _START,
    "up": _START,
    "load": _START,
    "down": _UNLOAD,
    "kill": _UNLOAD,
    "unload": _UNLOAD,
    "create": "`penstock convert MODEL FOLDER` writes a model with smaller weights.",
    "count": "`penstock tokenize MODEL TEXT --count` counts the tokens of a text.",
    "benchmark": "`penstock bench MODEL` measures how fast a model runs on this machine.",
    "info": "`penstock doctor` checks this machine.",
    "env": "`penstock doctor` checks this machine.",
    "log": "`penstock logs` shows the log of the background daemon.",
    "version": "`penstock --version` prints the version.",
}


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    fill_closed_descriptors()
    try:
        if words[:1] == ["help"]:
            words = [*(word for word in words[1:2] if word != "help"), "--help"]
        with _flushed():
            return _run(_command(words[:1]), words[1:])
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader has seen enough (`| head`); without this the interpreter complains once more at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:  # a disk that is full, a file that cannot be written
        write_line(f"penstock: {_in_words(error)}")
        return 1
    finally:
        settle_at_exit()


@contextmanager
def _flushed() -> Iterator[None]:
    """Flush printed output when a command has done its work, or its parser has shown the help."""
    try:
        yield
    except SystemExit:
        if sys.stdout is not None:
            sys.stdout.flush()
        raise
    if sys.stdout is not None:
        sys.stdout.flush()


def _in_words(error: OSError) -> str:
    reason = error.strerror or str(error) or type(error).__name__
    if error.filename is not None:
        return f"{error.filename!s}: {reason}."
    # Only a command's printed output is written to a file without a name.
    return f"standard output cannot be written: {reason}." if error.errno in _FULL else f"{reason}."


def _command(words: list[str]) -> str:
    """The subcommand's name; `--help`, `--version` and anything else end here."""
    parser = CommandLine(
        prog="penstock",
        usage="penstock COMMAND ...",
        description="Run large language models on this machine.",
        epilog=f"{_table()}\n\n`penstock help COMMAND` lists the options of one.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"penstock {__version__}")
    names = [*COMMANDS, *SYNONYMS, "help"]
    parser.add_argument("command", choices=names, metavar="COMMAND", help="one of the commands below")
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(2)
    _refuse_unknown(words[0], parser)
    command: str = parser.parse_args(words).command
    return command


def _table() -> str:
    width = max(map(len, COMMANDS))

    def lines(group: Group) -> Iterator[str]:
        yield f"{group.title}:"
        for name, sentence in group.commands.items():
            yield f"  {name:<{width}}  {sentence}"

    return "\n\n".join("\n".join(lines(group)) for group in GROUPS)


def _refuse_unknown(word: str, parser: CommandLine) -> None:
    """Check first: argparse would report a missing command if a flag is misspelt."""
    flags = [flag for action in parser._actions for flag in action.option_strings]
    if word.startswith("-") and not any(flag.startswith(word) for flag in flags):
        hint = suggestion(word.partition("=")[0], flags) or " The options of a command stand behind it."
        parser.error(f"penstock itself has {', '.join(flags)}, and not {word}.{hint}")
    if word in ADVICE:
        parser.error(f"{word!r} is not a command. {ADVICE[word]}")


def module_of(name: str) -> ModuleType:
    """The file of a subcommand."""
    name = SYNONYMS.get(name, name)
    room = next(group.room for group in GROUPS if name in group.commands)
    return import_module(".".join(filter(None, (".commands", room, name))), __package__)


def parser_of(name: str) -> CommandLine:
    command = module_of(name)
    parser = CommandLine(
        prog=f"penstock {name}",
        usage=f"penstock {name} {command.USAGE}",
        # PYTHONOPTIMIZE=2 leaves no docstring.
        description=(command.__doc__ or COMMANDS[SYNONYMS.get(name, name)]).split("\n\n")[0],
    )
    command.add_arguments(parser)
    parser.add_help_all()
    return parser


def _run(name: str, words: list[str]) -> int:
    # Imported here: `--help` and `--version` answer without loading what they don't need.
    from ..protocol.errors import PenstockError

    parser = parser_of(name)
    try:
        # Intermixed: a prompt may come before, between and after the options.
        arguments = parser.parse_intermixed_args(_with_hyphens(words))
        arguments.words = words  # as typed, for code that passes them on
        status: int = module_of(name).run(arguments, parser)
        return status
    except PenstockError as error:
        write_line(f"penstock: {error}")
        return 1


def _with_hyphens(words: list[str]) -> list[str]:
    """Accept `--max_tokens` as `--max-tokens`, for people who are used to Python's names."""
    end = words.index("--") if "--" in words else len(words)
    return [_hyphened(word) for word in words[:end]] + words[end:]


def _hyphened(word: str) -> str:
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else word


if __name__ == "__main__":
    sys.exit(main())
