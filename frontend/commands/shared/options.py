"""Command-line options made from the fields of a struct, which states name, type and description once.

Only given options become arguments, so defaults remain the struct's own. Values are read loosely, as a shell passes
them; the struct checks them itself, with the same error messages as in a script.
"""

import argparse
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from ....protocol.fields.rules import json_value
from ....protocol.options.kv_events import KvEventsConfig
from ....protocol.options.speculation import SpeculativeConfig
from ....protocol.parameters.early_stop import EarlyStop
from ....protocol.parameters.guided import GuidedDecodingParams
from ....protocol.processes.runtime_directory import daemon_socket
from ...console import logs
from ...console.command_line import RareHelp

# The fields that `--help` shows; `--help-all` shows the others, too.
_USUAL = {
    *("temperature", "top_p", "max_tokens", "stop", "guided_json", "receipt"),
    *("dimensions", "normalize", "prompt_name", "instruction", "truncate_prompt_tokens"),
    *("quantization", "max_model_len", "kv_cache_memory", "num_threads", "tensor_parallel_size", "data_parallel_size"),
    *("seed", "connect", "quiet"),
    *("http", "api_key_file", "allowed_hosts", "tls_certificate", "tls_key"),
}
# Shorter names of options.
_SHORT_FLAGS = {"prefix_cache_size": ("--prefix-cache",)}


class Kind(NamedTuple):
    """The command-line form of a type of field."""

    metavar: str
    read: Callable[[str], Any]
    action: str = "store"  # "append" and "extend": the option may be repeated


def number_or_text(word: str) -> int | float | str:
    """Convert to a number if possible. Text stays text ("4GiB", or a mistake that the struct's check will report)."""
    for read in (int, float):
        try:
            return read(word)
        except ValueError:
            continue
    return word


def _numbers(word: str) -> list[int | float | str]:
    return [number_or_text(part.strip()) for part in word.split(",")]


def _json(word: str) -> Any:
    try:
        return json_value(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{word!r} is not JSON ({error})") from None


_CONSTANTS = {"none": None, "null": None, "true": True, "false": False}


def _numbers_or_lists(word: str) -> list[Any]:
    return list(_json(word)) if word.lstrip().startswith("[") else _numbers(word)


def _json_or_name(word: str) -> Any:
    return _json(word) if word.lstrip().startswith("{") else _CONSTANTS.get(word.casefold(), word)


KINDS: dict[Any, Kind] = {
    int: Kind("N", number_or_text),
    float: Kind("X", number_or_text),
    str: Kind("TEXT", str),
    list[str]: Kind("TEXT", str, "append"),
    list[int]: Kind("N,N", _numbers, "extend"),
    list[int | list[int]]: Kind("N,N|JSON", _numbers_or_lists, "extend"),
    list[list[int]]: Kind("JSON", _json),
    dict[int, float]: Kind("JSON", _json),
    dict[str, Any]: Kind("JSON", _json),
    EarlyStop: Kind("JSON", _json),
    GuidedDecodingParams: Kind("JSON", _json),
    SpeculativeConfig: Kind("NAME|JSON", _json_or_name),
    KvEventsConfig: Kind("true|JSON", _json_or_name),
}


def add_options(
    parser: argparse.ArgumentParser,
    title: str,
    struct: type,
    leave_out: Collection[str] = (),
    meanings: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Add an option for each field that has a description; `meanings` are a command's own descriptions."""
    group = parser.add_argument_group(title)
    for field in msgspec.structs.fields(struct):
        kind, description = kind_and_description(field.type)
        if description is None or field.name in leave_out:
            continue
        flag = "--" + field.name.replace("_", "-")
        flags = [flag, *_SHORT_FLAGS.get(field.name, ())]
        meaning = _help(field.name, meanings.get(field.name, description), field.default)
        shared: dict[str, Any] = {"help": meaning, "default": argparse.SUPPRESS, "dest": field.name}
        if kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, **shared)
            for word in _words(field.type):
                group.add_argument(f"{flag}={word}", action="store_const", const=word, **shared)
        else:
            metavar, read, action = KINDS[kind]
            group.add_argument(*flags, action=action, type=read, metavar=metavar, **shared)


def given(arguments: argparse.Namespace, struct: type) -> dict[str, Any]:
    """The fields of the struct that are set on the command line."""
    names = {field.name for field in msgspec.structs.fields(struct)}
    return {name: value for name, value in vars(arguments).items() if name in names}


def kind_and_description(annotation: Any) -> tuple[Any, str | None]:
    """Split a field's annotation, such as `Annotated[int | None, Meta(description=…)]`: int, and the description."""
    if not hasattr(annotation, "__metadata__"):
        return annotation, None
    kind = annotation.__origin__
    # `int | None` is an int that may be left out; the arguments of `list[int]` contain no None.
    if NoneType in get_args(kind):
        kind = next(part for part in get_args(kind) if part is not NoneType)
    return kind, annotation.__metadata__[0].description


def _words(annotation: Any) -> tuple[str, ...]:
    """The words that a switch takes beside on and off: "portable" of `bool | Literal["portable"] | None`."""
    return next((get_args(part) for part in get_args(annotation.__origin__) if get_origin(part) is Literal), ())


def _help(name: str, description: str, default: Any) -> str:
    shown = "" if default is None or default is msgspec.NODEFAULT or isinstance(default, bool) else f" ({default})"
    shown = " (on)" if default is True else shown
    meaning = f"{description}{shown}".replace("%", "%%")
    return meaning if name in _USUAL else RareHelp(meaning)


def add_socket(parser: argparse.ArgumentParser) -> None:
    """Add the option `--socket`: the daemon that a command talks to."""
    parser.add_argument("--socket", metavar="PATH", type=Path, help="the daemon's socket, if it isn't the default one")


def socket_of(arguments: argparse.Namespace) -> Path:
    return arguments.socket.absolute() if arguments.socket else daemon_socket()


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add the option `-v` to commands that start a model; `obey_verbose` applies it."""
    parser.add_argument("-v", "--verbose", action="store_true", help="print the full memory plan at the start")


def obey_verbose(arguments: argparse.Namespace) -> None:
    if arguments.verbose:
        logs.be_verbose()
