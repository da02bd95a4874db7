"""Print a script that completes commands, options and values in a shell, and bundled models and files elsewhere. Write
it to ~/.local/share/bash-completion/completions/penstock, to _penstock in a folder of zsh's $fpath, or to
~/.config/fish/completions/penstock.fish.

It is made from the options themselves: print it again after an upgrade.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..models.model_names import BUNDLED

USAGE = "bash|zsh|fish"


class Option(NamedTuple):
    flags: tuple[str, ...]
    help: str
    metavar: str | None  # None: it takes no value
    choices: tuple[str, ...]
    is_repeated: bool


class Command(NamedTuple):
    name: str
    sentence: str
    options: tuple[Option, ...]
    words: tuple[str, ...]  # positional words to complete
    takes_files: bool  # as positional arguments, too


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), metavar="SHELL", help="bash, zsh or fish")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    print(_SCRIPTS[arguments.shell](list(_commands())), end="")
    return 0


def _commands() -> Iterator[Command]:
    from .. import cli  # which has imported this file by name

    for name in (*cli.COMMANDS, *cli.SYNONYMS):
        actions = cli.parser_of(name)._actions
        options = tuple(_option(action) for action in actions if action.option_strings and _is_shown(action))
        positional = [action for action in actions if not action.option_strings and _is_shown(action)]
        words = [str(each) for action in positional for each in action.choices or ()]
        models = [*BUNDLED] if any(action.metavar == "MODEL" for action in positional) else []
        takes_files = any(not action.choices for action in positional)
        yield Command(name, cli.COMMANDS[cli.SYNONYMS.get(name, name)], options, (*words, *models), takes_files)


def _is_shown(action: argparse.Action) -> bool:
    return action.help != argparse.SUPPRESS


def _option(action: argparse.Action) -> Option:
    takes_value = action.nargs != 0
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    return Option(
        tuple(action.option_strings),
        (action.help or "").replace("%%", "%"),
        metavar if takes_value else None,
        tuple(map(str, action.choices or ())),
        is_repeated=isinstance(action, (argparse._AppendAction, argparse._ExtendAction)),
    )


# --- bash: one function, with a case for each command -----------------------------------------------------------------

_BASH = """\
_penstock() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} command=${{COMP_WORDS[1]}} words=
    if ((COMP_CWORD == 1)); then
        words="{names}"
    else
        case "$command ${{COMP_WORDS[COMP_CWORD - 1]}}" in
{values}
        *)
            case "$command $word" in
{options}
            esac
            ;;
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _penstock penstock
"""


def _bash(commands: list[Command]) -> str:
    values, options = [], []
    for command in commands:
        for option in command.options:
            if option.metavar is not None:
                patterns = " | ".join(f'"{command.name} {flag}"' for flag in option.flags)
                values.append(f'        {patterns}) words="{" ".join(option.choices)}" ;;')
        flags = " ".join(flag for option in command.options for flag in option.flags)
        options.append(f'            "{command.name} -"*) words="{flags}" ;;')
        options.append(f'            "{command.name} "*) words="{" ".join(command.words)}" ;;')
    names = " ".join(command.name for command in commands)
    return _BASH.format(names=names, values="\n".join(values), options="\n".join(options))


# --- zsh: `_arguments` with a specification for each option -----------------------------------------------------------

_ZSH = """\
#compdef penstock
_penstock() {{
    if ((CURRENT == 2)); then
        local -a commands=({names})
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
{cases}
    esac
}}
# Read as a file of $fpath it is the function itself, else it defines it.
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _penstock "$@"
else
    compdef _penstock penstock
fi
"""


def _zsh(commands: list[Command]) -> str:
    names = " ".join(_quoted(f"{command.name}:{command.sentence}") for command in commands)
    cases = []
    for command in commands:
        specifications = [spec for option in command.options for spec in _zsh_specifications(option)]
        words = f"({' '.join(command.words)})"
        if command.words and command.takes_files:
            words = f'{{_alternative "words\\:word\\:{words}" "files\\:file\\:_files"}}'
        elif command.takes_files:
            words = "_files"
        specifications.append(_quoted(f"*:argument:{words}"))
        cases.append(f"    {command.name}) _arguments {' '.join(specifications)} ;;")
    return _ZSH.format(names=names, cases="\n".join(cases))


def _zsh_specifications(option: Option) -> Iterator[str]:
    meaning = "".join("\\" + letter if letter in "[]:\\" else letter for letter in option.help)
    repeated = "*" if option.is_repeated else ""
    for flag in option.flags:
        if option.metavar is None:
            yield _quoted(f"{repeated}{flag}[{meaning}]")
        else:
            values = f"({' '.join(option.choices)})" if option.choices else "_files"
            flag += "=" if flag.startswith("--") else ""
            yield _quoted(f"{repeated}{flag}[{meaning}]:{option.metavar}:{values}")


# --- fish: a line for each option -------------------------------------------------------------------------------------


def _fish(commands: list[Command]) -> str:
    return "".join(line + "\n" for line in _fish_lines(commands))


def _fish_lines(commands: list[Command]) -> Iterator[str]:
    for command in commands:
        yield f"complete -c penstock -f -n __fish_use_subcommand -a {command.name} -d {_fish_quoted(command.sentence)}"
        begin = f"complete -c penstock -n '__fish_seen_subcommand_from {command.name}'"
        if command.words or not command.takes_files:
            yield f"{begin}{'' if command.takes_files else ' -f'} -a {_fish_quoted(' '.join(command.words))}"
        for option in command.options:
            flags = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in option.flags)
            value = "" if option.metavar is None else " -r"
            value += f" -f -a {_fish_quoted(' '.join(option.choices))}" if option.choices else ""
            yield f"{begin} {flags}{value} -d {_fish_quoted(option.help)}"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_SCRIPTS: dict[str, Callable[[list[Command]], str]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
