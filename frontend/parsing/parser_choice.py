"""Chooses the rows for parsing the answers of one model.

If an option is unset, the model's template determines the row, for conversations only: outputs of `generate` stay as
the model wrote them. A family's name or `auto` applies to every answer, `none` to none. Rows come from the tables here,
from a user's file, or from an installed package's entry points: code that the user chose, run in the user's process.
"""

import importlib.util
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Generic, TypeVar

import msgspec

from ...protocol.errors import ConfigError
from ...protocol.fields.suggestion import suggestion
from ...protocol.files.model_file import file_identity
from ...protocol.options.config import EngineConfig
from ...protocol.options.plugins import installed
from ...records import dataclass
from .answer import AnswerReader
from .channel_answer import ChannelReader
from .channel_header import is_thinking
from .families import (
    REASONING,
    REASONING_ALIASES,
    REASONING_SIGNS,
    TOOL_CALL_ALIASES,
    TOOL_CALL_SIGNS,
    TOOL_CALLS,
    Signs,
    automatic,
    plain_name,
)
from .marks import CallMarks, Channels, ThoughtMarks, Tools
from .piecewise import PiecewiseReader

Row = TypeVar("Row", ThoughtMarks, CallMarks)
NONE = "none"


@dataclass(frozen=True, slots=True)
class _ParserOption(Generic[Row]):
    """One of the two options, with all sources of its rows."""

    option: str
    plugin_option: str
    table: str  # the table's name in a plugin's file
    kind: type[Row]
    rows: Mapping[str, Row]
    aliases: Mapping[str, str]
    signs: Signs
    group: str  # of entry points

    def row(self, config: EngineConfig) -> Row | None:
        """The row that the config names; `auto` must have been settled before."""
        name, file = getattr(config, self.option), getattr(config, self.plugin_option)
        own = rows_of_file(file, self.plugin_option, self.table, self.kind) if file else {}
        if name is None and own:
            raise ConfigError(f"{self.plugin_option} brings {', '.join(own)}: choose with {self.option}=….")
        plain = plain_name(name or NONE)
        if plain == NONE:
            return None
        row = own.get(plain) or self.rows.get(self.aliases.get(plain, plain))
        row = row or row_of_entry_point(plain, self.group, self.kind)
        if row is None:
            raise ConfigError(self._unknown(name, plain, list(own)))
        return row

    def row_of_chats(self, config: EngineConfig, template: str) -> Row | None:
        """The row for conversations if the option is unset: the one that the template shows."""
        if getattr(config, self.option) is not None:
            return self.row(config)
        name = automatic(self.signs, template)
        return None if name is None else self.rows[name]

    def settled(self, config: EngineConfig, template: str, special_tokens: Callable[[], str]) -> str | None:
        name: str | None = getattr(config, self.option)
        if name is None or plain_name(name) != "auto":
            return name
        return automatic(self.signs, template) or automatic(self.signs, special_tokens())

    def _unknown(self, name: str, plain: str, own: list[str]) -> str:
        names: list[str] = [*own, *self.rows, *names_of_entry_points(self.group)]
        hint = suggestion(plain, ["auto", NONE, *names, *self.aliases])
        return f"{self.option}={name!r}: must be one of auto, {NONE}, {', '.join(names)}.{hint}"


_REASONING = _ParserOption(
    "reasoning_parser",
    "reasoning_parser_plugin",
    "REASONING",
    ThoughtMarks,
    REASONING,
    REASONING_ALIASES,
    REASONING_SIGNS,
    "penstock.reasoning_parsers",
)
_TOOL_CALLS = _ParserOption(
    "tool_call_parser",
    "tool_parser_plugin",
    "TOOL_CALLS",
    CallMarks,
    TOOL_CALLS,
    TOOL_CALL_ALIASES,
    TOOL_CALL_SIGNS,
    "penstock.tool_parsers",
)


@dataclass(frozen=True, slots=True)
class Parsing:
    """How one model's answers are parsed: for thoughts, calls or both."""

    thoughts: ThoughtMarks | None
    calls: CallMarks | None

    def __post_init__(self) -> None:
        if self.thoughts and self.calls and self.thoughts.channels != self.calls.channels:
            raise ConfigError(
                "reasoning_parser and tool_call_parser don't fit together: one reads messages in channels, whose "
                "headers tell thoughts, text and calls apart, and the other doesn't. Give both the same family."
            )

    @property
    def channels(self) -> Channels | None:
        """The marks of the channels, if answers are messages in channels."""
        row = self.thoughts or self.calls
        return row.channels if row else None

    @classmethod
    def of(cls, config: EngineConfig) -> "Parsing | None":
        """Parsing as configured; None if the config asks for neither."""
        thoughts, calls = _REASONING.row(config), _TOOL_CALLS.row(config)
        return cls(thoughts, calls) if thoughts or calls else None

    @property
    def shown(self) -> list[str]:
        """Marks that must stay in the text, even if the tokenizer would hide them as special tokens."""
        return sorted(frozenset().union(*(row.shown for row in (self.thoughts, self.calls) if row)))

    def is_thinking(self, prompt_end: str) -> bool:
        """Whether an answer to this prompt begins within its thought: the template may have opened or closed it."""
        if self.thoughts is None:
            return False
        if self.thoughts.channels is not None:
            return is_thinking(self.thoughts.channels, prompt_end)
        end = prompt_end.rstrip()
        if end.endswith(self.thoughts.all_openings):
            return True
        return self.thoughts.begins_open and not end.endswith(self.thoughts.all_closings)

    def reader(self, prompt_end: str, tools: Tools, call_id: Callable[[int], str]) -> PiecewiseReader:
        """A reader for one answer."""
        if self.channels is not None:
            return ChannelReader(self.channels, self.thoughts, self.calls, tools, call_id, prompt_end)
        return AnswerReader(self.thoughts, self.calls, tools, call_id, is_thinking=self.is_thinking(prompt_end))


@dataclass(frozen=True, slots=True)
class Parsings:
    """How one model's answers are parsed: all of them, and those to conversations."""

    always: Parsing | None
    thoughts_of_chats: ThoughtMarks | None
    calls_of_chats: CallMarks | None

    def __post_init__(self) -> None:
        Parsing(self.thoughts_of_chats, self.calls_of_chats)  # raises if they don't fit together

    @classmethod
    def of(cls, config: EngineConfig, template: str = "") -> "Parsings":
        """`template` is the model's, or the one given instead."""
        return cls(
            Parsing.of(config), _REASONING.row_of_chats(config, template), _TOOL_CALLS.row_of_chats(config, template)
        )

    def of_chat(self, *, has_tools: bool) -> Parsing | None:
        """Parse calls if the conversation has tools, or if the option says so."""
        is_calling = has_tools or (self.always is not None and self.always.calls is not None)
        calls = self.calls_of_chats if is_calling else None
        thoughts = self.thoughts_of_chats
        return Parsing(thoughts, calls) if thoughts or calls else None

    @property
    def shown(self) -> list[str]:
        """Marks that must stay in the text for the readers."""
        return Parsing(self.thoughts_of_chats, self.calls_of_chats).shown


def settled(config: EngineConfig, template: str, special_tokens: Callable[[], str]) -> EngineConfig:
    """Replace `auto` by the row that the model's chat template or special tokens show, or None."""
    options = (_REASONING, _TOOL_CALLS)
    chosen = {each.option: each.settled(config, template, special_tokens) for each in options}
    config = msgspec.structs.replace(config, **chosen)
    Parsing.of(config)  # raises for an unknown name
    return config


# --- rows of plugins --------------------------------------------------------------------------------------------------


def rows_of_file(path: str, option: str, table: str, kind: type[Row]) -> dict[str, Row]:
    """The rows in the `table` of the file that `option` names."""
    module = _module(path, option)
    rows = getattr(module, table, None)
    if not isinstance(rows, Mapping) or not rows:
        raise ConfigError(f"{option}={path!r}: it must define {table}, a dict of names and {kind.__name__} rows.")
    return {plain_name(str(name)): _checked(row, kind, f"{table}[{name!r}] in {path}") for name, row in rows.items()}


def row_of_entry_point(name: str, group: str, kind: type[Row]) -> Row | None:
    for point in installed(group):
        if plain_name(point.name) == name:
            where = f"the entry point {point.name} = {point.value} ({group})"
            try:
                row = point.load()
            except Exception as error:
                raise ConfigError(f"{where} can't be loaded: {type(error).__name__}: {error}") from error
            return _checked(row, kind, where)
    return None


def names_of_entry_points(group: str) -> list[str]:
    return sorted(plain_name(point.name) for point in installed(group))


def _checked(row: Any, kind: type[Row], where: str) -> Row:
    if not isinstance(row, kind):
        raise ConfigError(f"{where} is a {type(row).__name__}; it must be a {kind.__name__} (docs/adding-a-parser.md).")
    return row


def _module(path: str, option: str) -> ModuleType:
    file = Path(os.path.expanduser(path))
    if not os.path.isfile(file):
        raise ConfigError(f"{option}={path!r} is no file. Give the path of a Python file with the rows.")
    file = file.resolve()
    try:
        return _loaded(file, file_identity(file))
    except Exception as error:
        raise ConfigError(f"{option}={path!r} can't be loaded: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=16)
def _loaded(file: Path, identity: tuple[int, ...]) -> ModuleType:
    """Load each version of the file once."""
    if file.suffix != ".py":
        raise ValueError("its name must end in .py")
    name = f"penstock_plugin_{file.stem}"
    loader = _SourceLoader(name, str(file))
    module = importlib.util.module_from_spec(ModuleSpec(name, loader, origin=str(file)))
    loader.exec_module(module)
    return module


class _SourceLoader(SourceFileLoader):
    """Compiles the file each time: Python would reuse compiled code of a file with the same time and size."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)
