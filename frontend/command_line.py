"""argparse that says which option, command or value was probably meant. Knows no option in particular."""

import argparse
from collections.abc import Sequence
from typing import Any

from ..protocol.suggestion import suggestion


class CommandLine(argparse.ArgumentParser):
    def parse_intermixed_args(self, words: Sequence[str]) -> argparse.Namespace:  # type: ignore[override]
        """Options may stand before, between and after what else is given."""
        arguments, unknown = self.parse_known_intermixed_args(words)
        if unknown:
            flag = next((word for word in unknown if word.startswith("-")), unknown[0])
            hint = suggestion(flag.partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{'.' if hint else ''}{hint}")
        return arguments

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = list(map(str, action.choices))
            words = f"{value!r} must be one of {', '.join(names)}.{suggestion(value, names)}"
            raise argparse.ArgumentError(action, words)
