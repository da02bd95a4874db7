"""Prompts and the answers that a model would be wanted to give, in five kinds of work.

Nothing here is written for the benchmark but the instructions: texts are chapters of Python's reference, functions of
its library, metadata of installed packages. Edits are a renamed word, a sentence left out and one added; extracted JSON
holds what the text says; calls read and edit the files that the conversation has listed; code is edited or goes on in
the library's own words; chat answers with prose that isn't in the prompt.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from .sources import LIBRARY, beginning, end_of, field, function_of, metadata, topic


class Text(NamedTuple):
    kind: str
    name: str
    prompt: str
    answer: str


def asked(system: str, user: str) -> str:
    return f"<|system|>\n{system}\n<|user|>\n{user}\n<|assistant|>\n"


# --- edit -------------------------------------------------------------------------------------------------------------

# The chapter, a word of it, and what is to stand there.
EDITS = (
    ("objects", "identity", "sameness"),
    ("execmodel", "variable", "binding"),
    ("naming", "module", "file"),
    ("exceptions", "handler", "receiver"),
)
ADDED = "Readers who are new to this find examples in the tutorial."


def edits() -> Iterator[Text]:
    for name, old, new in EDITS:
        text = beginning(topic(name), 2050)
        sentence = re.findall(r"(?<=[.] )[A-Z][^.]+[.] ", text)[1]
        instruction = (
            f'Write this text again with "{new}" for "{old}", without the sentence that begins with '
            f'"{sentence[:24]}", and with this sentence at its end: {ADDED}\n\n{text}'
        )
        answer = f"{text.replace(sentence, '').replace(old, new)}\n{ADDED}\n"
        yield Text("edit", name, asked("You edit texts.", instruction), answer)


# --- JSON -------------------------------------------------------------------------------------------------------------

PACKAGES = (("numpy", "msgspec", "jinja2"), ("pyzmq", "psutil", "tokenizers"))
FIELDS = (
    "Name",
    "Version",
    "Summary",
    "Home-page",
    "Author",
    "Author-email",
    "License",
    "License-Expression",
    "Project-URL",
    "Keywords",
    "Requires-Python",
)


def extractions() -> Iterator[Text]:
    for packages in PACKAGES:
        found = "\n\n".join(metadata(package, FIELDS) for package in packages)
        records = [
            {name.lower(): field(package, name) for name in ("Name", "Version", "Summary", "Requires-Python")}
            for package in packages
        ]
        instruction = f"Return a JSON list with name, version, summary and requires-python of each.\n\n{found}"
        answer = json.dumps(records, indent=1, ensure_ascii=False) + "\n"
        yield Text("json", packages[0], asked("You extract JSON from texts.", instruction), answer)
    yield releases()


def releases() -> Text:
    """The table of releases in Python's licence."""
    from_table = r"^    (\S.+?)  +(?:(\S+)  +)?(\d{4}\S*)  +(\S+) +(yes|no)"
    text = (LIBRARY / "LICENSE.txt").read_text()
    table = text[text.index("    Release  ") : text.index("Footnotes:")]
    names = ("release", "derived_from", "year", "owner", "gpl_compatible")
    records = [dict(zip(names, row, strict=True)) for row in re.findall(from_table, table, re.M)][:7]
    instruction = f"Return a JSON list with {', '.join(names)} of the first seven releases.\n\n{table}"
    return Text("json", "releases", asked("You extract JSON from texts.", instruction), json.dumps(records, indent=1))


# --- tool calls -------------------------------------------------------------------------------------------------------

PATH = {"path": {"type": "string", "description": "Relative to the repository."}}
TOOLS = [
    {"name": "list_files", "parameters": {"type": "object", "properties": PATH}},
    {
        "name": "read_file",
        "parameters": {
            "type": "object",
            "properties": {**PATH, "first_line": {"type": "integer"}, "num_lines": {"type": "integer"}},
        },
    },
    {
        "name": "edit_file",
        "parameters": {
            "type": "object",
            "properties": {**PATH, "old_text": {"type": "string"}, "new_text": {"type": "string"}},
        },
    },
]
# The folder, and the file of it that was read already.
FOLDERS = (("json", "scanner.py"), ("wsgiref", "types.py"))


def calls() -> Iterator[Text]:
    system = "You work on a repository with these tools:\n" + "\n".join(map(json.dumps, TOOLS))
    for folder, known in FOLDERS:
        files = sorted(path.name for path in (LIBRARY / folder).glob("*.py"))
        user = f"Read the first lines of all files in {folder}."
        turns = [
            said(call("list_files", path=folder)),
            returned("\n".join(f"{folder}/{name}" for name in files)),
            said(call("read_file", path=f"{folder}/{known}", first_line=1, num_lines=12)),
            returned("\n".join((LIBRARY / folder / known).read_text().splitlines()[:12])),
        ]
        others = [name for name in files if name != known][:5]
        answer = "".join(call("read_file", path=f"{folder}/{name}", first_line=1, num_lines=12) for name in others)
        yield Text("tools", folder, asked(system, user) + "".join(turns), answer)
    yield edit_call(system)


def edit_call(system: str) -> Text:
    source, before = function_of("json/scanner.py", "_scan_once")
    old = "".join(source.splitlines(keepends=True)[:12])
    user = "Call the variable nextchar in json/scanner.py char, in the first twelve lines of _scan_once."
    first_line = before.count("\n") + 1
    turns = [
        said(call("read_file", path="json/scanner.py", first_line=first_line, num_lines=source.count("\n"))),
        returned(source),
    ]
    answer = call("edit_file", path="json/scanner.py", old_text=old, new_text=old.replace("nextchar", "char"))
    return Text("tools", "edit_file", asked(system, user) + "".join(turns), answer)


def call(name: str, **arguments: object) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>\n"


def said(calls: str) -> str:
    return calls + "<|tool|>\n"


def returned(content: str) -> str:
    return f"{content}\n<|assistant|>\n"


# --- code -------------------------------------------------------------------------------------------------------------

# The file, a function of it, a variable to rename, and its new name.
RENAMED = (("posixpath.py", "commonpath", "split_paths", "parts"), ("json/decoder.py", "JSONArray", "end", "index"))
# The file, and a function to write after those before it.
CONTINUED = (("tarfile.py", "bz2open"), ("heapq.py", "nlargest"))


def code() -> Iterator[Text]:
    for (file, name, old, new), (continued, following) in zip(RENAMED, CONTINUED, strict=True):
        function, before = function_of(file, name)
        shown = f"```python\n{end_of(before, 500)}{function}```"
        instruction = f"Rename the variable {old} in {name} to {new}, and return {name} whole.\n\n{shown}"
        renamed = re.sub(rf"(?<![.])\b{old}\b", new, function)
        yield Text("code", name, asked("You edit Python.", instruction), f"```python\n{renamed}```\n")
        function, before = function_of(continued, following)
        instruction = f"Write {following}, which comes next.\n\n```python\n{end_of(before, 1500)}```"
        yield Text("code", following, asked("You write Python.", instruction), f"```python\n{function}```\n")


# --- chat -------------------------------------------------------------------------------------------------------------

QUESTIONS = {
    "naming": "How are names bound in Python?",
    "types": "What is the standard type hierarchy?",
    "attribute-access": "How do I customize attribute access?",
    "import": "What does an import statement do, step by step?",
    "objects": "What are objects, values and types?",
    "class": "What happens when a class is defined?",
}


def chats() -> Iterator[Text]:
    for name, question in QUESTIONS.items():
        yield Text("chat", name, asked("You are a helpful assistant.", question), beginning(topic(name), 1300))


KINDS: dict[str, Callable[[], Iterator[Text]]] = {
    "edit": edits, "json": extractions, "tools": calls, "code": code, "chat": chats,
}  # fmt: skip
