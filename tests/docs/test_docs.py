"""The pages can be trusted: their Python runs, their commands exist with those options, their links and files too.

A page's Python blocks are one script, as for a reader who types along; a traceback names the
page's own lines. Where a page says `/path/to/…` or names the bundled model, a model stands in that is there.
"""

import argparse
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
import write_benchmarks
import write_configuration
from bench.__main__ import scenario, scenarios
from builders.cases import for_each

import penstock
from penstock import (
    LLM,
    BeamSearchParams,
    CompletionOutput,
    ConfigError,
    GuidedDecodingParams,
    RequestOutput,
    SamplingParams,
)
from penstock.frontend import cli
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.options.foreign_options import TRANSLATED, notices

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LONGEST_SECONDS = 600
# What a page's Python prints among other things, on lines of its own: what pocket was asked, it could answer.
PRINTS = {
    "README.md": ["42"],
    "getting-started.md": ["What is 17 + 25? 42", "What is the capital of France? Paris", "7 0", "8 1"],
    "architecture.md": ["'5' stop 0"],
    "configuration.md": ["5"],
    "pictures.md": ["square"],
    "quantization.md": ["5"],
    "structured-output.md": ["What is 20 + 22? '42' stop", "What is the capital of Italy? 'Rome' stop"],
}
# On one tree of each bundled model. The others run in the long tests: they start trees of their own, or register kinds
# of their own in their process.
RUN_QUICKLY = {
    *("README.md", "beam-search.md", "configuration.md", "daemon.md", "getting-started.md", "http.md", "pictures.md"),
    *("sampling.md", "structured-output.md"),
}
OF_THE_SHELL = {"cat", "cd", "echo", "export", "git", "head", "seq"}
ENDS_A_COMMAND = {"|", "||", "&&", ";", "&"}


class Block(NamedTuple):
    page: Path
    line: int  # of its first line of text
    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(page, text[: found.start(2)].count("\n") + 1, found[1], found[2]) for found in FENCE.finditer(text)]


def script_of(page: Path) -> str:
    """All Python of a page, each block in its own lines."""
    script = ""
    for block in blocks(page):
        if block.language == "python":
            script += "\n" * (block.line - 1 - script.count("\n")) + block.text
    return script


SCRIPTS = [page for page in PAGES if script_of(page)]


def written_script(page: Path, folder: Path) -> str:
    """The path of a page's Python, whose models are the bundled ones."""
    path = folder / f"{page.stem}.md.py"
    path.write_text(re.sub(r'"(pocket|/path/to/[\w.-]+)"', '"pocket"', script_of(page)), encoding="utf-8")
    return str(path)


def check_printed(page: Path, said: str) -> None:
    assert set(PRINTS.get(page.name, ())) <= set(said.splitlines()), said


@for_each("page", [page for page in SCRIPTS if page.name in RUN_QUICKLY], ids=lambda page: page.name)
def test_the_python_of_a_page_runs(page, bundled_trees, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with bundled_trees.in_place():
        runpy.run_path(written_script(page, tmp_path), run_name="__main__")
    check_printed(page, capsys.readouterr().out)


@pytest.mark.long
@pytest.mark.parametrize("page", SCRIPTS, ids=lambda page: page.name)
def test_the_python_of_a_page_runs_by_itself(page, tmp_path):
    words = [sys.executable, written_script(page, tmp_path)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    assert done.returncode == 0, f"{done.stderr[-4000:]}\n{page.name} has the lines that the traceback names"
    check_printed(page, done.stdout)


def commands_of(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Where it stands and its words, for each command. A block that doesn't say what it is may hold pictures, too."""
    for number, line in enumerate(block.text.splitlines(), block.line):
        if block.language not in ("", "sh"):
            continue
        try:
            lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
            lexer.whitespace_split = True
            words = list(lexer)
        except ValueError:  # an open quote: a picture
            words = []
        for command in split(words):
            if block.language == "sh" or kind_of(command[0]) is not None:
                yield f"{block.page.name}:{number}", command


def split(words: list[str]) -> Iterator[list[str]]:
    command: list[str] = []
    for word in words:
        if word in ENDS_A_COMMAND:
            yield command
            command = []
        else:
            command.append(word)
    if command:
        yield command


def kind_of(program: str) -> str | None:
    if program == "scripts/benchmark":
        return "benchmark"
    if program.startswith("scripts/"):
        return "script"
    if (name := Path(program).name) in ("penstock", "python", "pip", "pytest"):
        return name
    return "shell" if name in OF_THE_SHELL else None


COMMANDS = [command for page in PAGES for block in blocks(page) for command in commands_of(block)]


@for_each("command", [pytest.param(words, id=f"{place} {words[0]}") for place, words in COMMANDS])
def test_a_command_exists_with_the_options_that_a_page_shows(command):
    program, *words = command
    kind = kind_of(program)
    assert kind is not None, f"{program} is no command that these pages know"
    CHECKS[kind](program, words)


def check_penstock(program: str, words: list[str]) -> None:
    if words and (words[0] in ("--help", "--version") or words[-1] == "--help-all"):
        return
    assert words and words[0] in (*cli.COMMANDS, *cli.SYNONYMS), f"there is no command {' '.join(words[:1])}"
    parser = argparse.ArgumentParser(exit_on_error=False)
    cli.module_of(words[0]).add_arguments(parser)
    parser.parse_intermixed_args(words[1:])


def check_script(program: str, words: list[str]) -> None:
    path = ROOT / program
    assert path.is_file(), f"there is no {program}"
    assert path.suffix == ".py" or os.access(path, os.X_OK), f"{program} cannot be executed"
    # A script of the shell hands its options to the Python file of its name, or to pytest.
    named = ROOT / "tests" / "conftest.py" if program == "scripts/test" else path.with_suffix(".py")
    source = named.read_text(encoding="utf-8") if named.is_file() else ""
    assert [word for word in words if word.startswith("--") and f'"{word.partition("=")[0]}"' not in source] == []


def check_python(program: str, words: list[str]) -> None:
    if words[:2] == ["-m", "pytest"]:
        check_pytest(program, words[2:])
    else:
        check_script(words[0], words[1:])


def check_pytest(program: str, words: list[str]) -> None:
    assert [word for word in words if word.startswith("tests") and not (ROOT / word).exists()] == []


def check_pip(program: str, words: list[str]) -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = {extra for word in words for found in re.findall(r"\.\[([\w,]+)]", word) for extra in found.split(",")}
    assert words[0] == "install" and extras <= set(known)


def check_shell(program: str, words: list[str]) -> None:
    assert program in ("cd", "export") or shutil.which(program) is not None


def check_benchmark(program: str, words: list[str]) -> None:
    if words[0] not in ("-h", "machine"):
        assert words[0] in scenarios(), f"there is no scenario {words[0]}"
        _, parser = scenario(words[0])
        parser.parse_args([word for word in words[1:] if word != "\\"])


CHECKS = {
    "penstock": check_penstock, "script": check_script, "python": check_python, "pytest": check_pytest,
    "pip": check_pip, "shell": check_shell, "benchmark": check_benchmark,
}  # fmt: skip


@for_each("page", PAGES, ids=lambda page: page.name)
def test_links_and_files_named_on_a_page_exist(page):
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    links = {link for link in re.findall(r"]\(([^)#]+)[^)]*\)", text) if "://" not in link}
    assert [link for link in sorted(links) if not (page.parent / link).exists()] == []
    files = set(re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|md|toml))`", text))
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []


def test_the_page_of_options_is_what_its_script_writes():
    assert write_configuration.PAGE.read_text(encoding="utf-8") == write_configuration.page(), (
        "docs/configuration.md is stale: run scripts/write_configuration.py"
    )


def test_the_figures_on_the_pages_are_those_of_the_sittings():
    stale = [path.name for path, _ in write_benchmarks.stale()]
    assert stale == [], f"{stale}: run scripts/write_benchmarks.py"


def own_names() -> Iterator[str]:
    """The bare names in the first column of the tables of coming-from.md whose first column is Penstock's."""
    is_ours = False
    for line in (ROOT / "docs" / "coming-from.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            is_ours = False
        elif cells[0] == "Penstock":
            is_ours = True
        elif is_ours and not cells[0].startswith("---"):
            for code in re.findall(r"`([^`]*)`", cells[0]):
                yield from re.findall(r"^\.?(?:outputs(?:\[i\])?\.)?(\w+)", code)


def known_names() -> set[str]:
    structs = (EngineConfig, SamplingParams, BeamSearchParams, GuidedDecodingParams)
    known = {field.name for struct in structs for field in msgspec.structs.fields(struct)}
    known |= {field.name for result in (RequestOutput, CompletionOutput) for field in fields(result)}
    known |= {name for name in dir(LLM) if not name.startswith("_")}
    return known | set(penstock.__all__) | {"int8", "int4", "wint8", "wint4", "dummy"}


def test_what_coming_from_calls_penstocks_own_name_is_one():
    names = list(own_names())
    assert len(names) > 80, "the tables were not found"
    assert set(names) <= known_names(), set(names) - known_names()


def test_what_coming_from_says_of_each_option_of_engine_args_is_so():
    page = (ROOT / "docs" / "coming-from.md").read_text()
    [table] = re.findall(r"^### Every option of `EngineArgs`\n(.*?)^#", page, re.M | re.S)
    rows = re.findall(r"^\| (acts|no effect|refused)(?:: (.*?))? \| (.*) \|$", table, re.M)
    options = [(kind, why, name) for kind, why, cells in rows for name in sorted(set(re.findall(r"`(\w+)`", cells)))]
    assert len(options) > 200, "the table was not found"
    for kind, why, name in options:
        if kind == "acts":
            assert name in {field.name for field in msgspec.structs.fields(EngineConfig)} | TRANSLATED.keys()
        elif kind == "no effect":
            EngineConfig.from_options("m", **{name: "xgrammar"})  # which one of them must know
            assert notices({name: "xgrammar"}) == [f"{name} has no effect: {why}."]
        else:
            with pytest.raises(ConfigError, match=re.escape(f"{why}.")):
                EngineConfig.from_options("m", **{name: "nonsense"})
