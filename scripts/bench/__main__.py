"""Lists the scenarios, and runs one: its options are the parameters of its `run`."""

import argparse
import ast
import inspect
import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .machine import machine

HERE = Path(__file__).parent
ROOMS = ("trees", "kernels", "daemon", "peers", "accuracy")


def scenarios() -> dict[str, Path]:
    return {
        path.stem.replace("_", "-"): path
        for room in ROOMS
        for path in sorted((HERE / room).glob("*.py"))
        if path.stem != "__init__"
    }


def listing() -> str:
    lines = ["scripts/benchmark SCENARIO [OPTION …]; SCENARIO -h says more", ""]
    for room in ROOMS:
        lines.append(first_line(HERE / room / "__init__.py"))
        named = [(name, path) for name, path in scenarios().items() if path.parent.name == room]
        lines += [*(f"  {name:<12} {first_line(path)}" for name, path in named), ""]
    lines.append("machine        Show what this machine gives: bandwidth, arithmetic, versions.")
    return "\n".join(lines)


def first_line(path: Path) -> str:
    """A file's first sentence about itself, without importing it."""
    return (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]


def scenario(name: str) -> tuple[Callable[..., Any], argparse.ArgumentParser]:
    """A scenario's `run`, and the parser of its options."""
    path = scenarios()[name]
    module = import_module(f"bench.{path.parent.name}.{path.stem}")
    run = module.run
    parser = argparse.ArgumentParser(
        prog=f"scripts/benchmark {name}", description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_options(parser, run)
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the figures to this file, a line for each run")
    return run, parser


def add_options(parser: argparse.ArgumentParser, run: Callable[..., Any]) -> None:
    hints = get_type_hints(run)
    for parameter in inspect.signature(run).parameters.values():
        add_option(parser, parameter, hints[parameter.name])


def add_option(parser: argparse.ArgumentParser, parameter: inspect.Parameter, hint: Any) -> None:
    """Add an option of the parameter's type; a parameter without a default is a positional argument."""
    default, settings = parameter.default, dict[str, Any]()
    if isinstance(hint, UnionType):
        hint = next(each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is tuple:
        hint, settings["nargs"] = get_args(hint)[0], "+"
    if get_origin(hint) is Literal:
        settings["choices"], hint = list(get_args(hint)), str
    if default is inspect.Parameter.empty:
        parser.add_argument(parameter.name, type=hint, **settings)
        return
    flag = "--" + parameter.name.replace("_", "-")
    if hint is bool:
        parser.add_argument(flag, action="store_true")
    else:
        shown = " ".join(map(str, default)) if isinstance(default, tuple) else default
        about = None if default in (None, ()) else f"by default {shown}"
        parser.add_argument(flag, type=hint, default=default, help=about, **settings)


def main() -> None:
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help"):
        print(listing())
        return
    name, *words = words
    if name == "machine":
        print(json.dumps(machine(), indent=1))
        return
    if name not in scenarios():
        sys.exit(f"There is no scenario {name}; scripts/benchmark -h lists them.")
    run, parser = scenario(name)
    options = vars(parser.parse_args(words))
    kept = options.pop("json")
    about = machine()
    print(json.dumps(about), flush=True)
    figures = run(**options)
    if kept and figures is not None:
        with kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"benchmark": name, "options": words, "machine": about, "figures": figures}) + "\n")


if __name__ == "__main__":
    main()
