"""An `argparse` parser that suggests the option, command or value that was probably meant.

Its help fits a screen: options with a `RareHelp` are shown by `--help-all` alone.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

from ...protocol.fields.suggestion import suggestion

if TYPE_CHECKING:
    from _typeshed import SupportsWrite


_PLAINER = {
    "invalid int value: ": "must be a whole number, not ",
    "invalid float value: ": "must be a number, not ",
}


class RareHelp(str):
    """The help of a rarely needed option."""


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        parser._print_message(argparse.ArgumentParser.format_help(parser), sys.stdout)
        parser.exit()


class CommandLine(argparse.ArgumentParser):
    def add_help_all(self) -> None:
        """Add `--help-all`; call this when all other options have been added."""
        words = "show all options" if self._rare() else argparse.SUPPRESS
        self.add_argument("--help-all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS, help=words)

    def format_help(self) -> str:
        """Format the help without rarely needed options, but with their number."""
        rare = self._rare()
        helps = [action.help for action in rare]
        for action in rare:
            action.help = argparse.SUPPRESS
        try:
            text = super().format_help()
        finally:
            for action, words in zip(rare, helps, strict=True):
                action.help = words
        return f"{text}\n{len(rare)} more options: {self.prog} --help-all\n" if rare else text

    def _rare(self) -> list[argparse.Action]:
        return [action for action in self._actions if isinstance(action.help, RareHelp)]

    def parse_intermixed_args(self, words: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """Parse options before, between and after positional arguments."""
        arguments, unknown = self.parse_known_intermixed_args(self._joined(words))
        if unknown:
            flag = next((word for word in unknown if word.startswith("-")), unknown[0])
            hint = suggestion(flag.partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{'.' if hint else ''}{hint}")
        return arguments

    def _joined(self, words: Sequence[str]) -> list[str]:
        """Join each switch with the word behind it that it takes, such as `portable` behind `--deterministic`."""
        joined: list[str] = []
        for word in words:
            if joined and f"{joined[-1]}={word}" in self._option_string_actions:
                joined[-1] += f"={word}"
            else:
                joined.append(word)
        for word in joined:
            self._check_switch(word)
        return joined

    def _check_switch(self, word: str) -> None:
        """Refuse a switch with another word than those that it takes."""
        flag, sign, given = word.partition("=")
        taken = [other.partition("=")[2] for other in self._option_string_actions if other.startswith(f"{flag}=")]
        if sign and taken and given not in taken:
            self.error(f"{flag} is given alone or with {', '.join(taken)}, not {given!r}.{suggestion(given, taken)}")

    def error(self, message: str) -> NoReturn:
        if message.endswith("expected one argument"):
            message += "; one that begins with - is written --option=VALUE"
        for words, plainer in _PLAINER.items():
            message = message.replace(words, plainer)
        super().error(message)

    def _print_message(self, message: str, file: "SupportsWrite[str] | None" = None) -> None:
        if message and file is not None and file is sys.stdout:
            file.write(message)  # argparse itself drops what can't be written
            return
        with suppress(OSError):  # but not Python 3.11.2's, where standard error may be a full disk
            super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = list(map(str, action.choices))
            words = f"{value!r} must be one of {', '.join(names)}.{suggestion(value, names)}"
            raise argparse.ArgumentError(action, words)
