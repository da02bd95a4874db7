"""Show the tokens of texts with their ids, or count them. Each argument is a text; - or none is all of standard input.
No model is loaded, and no weights are downloaded.
"""

import argparse
import json
import sys

from ...protocol.errors import RequestError
from ..console.printable import on_one_line
from ..text.tokenizer import Tokenizer

USAGE = "MODEL [TEXT ...] [options]"
_STANDARD_INPUT = "-"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="bundled name, folder, or hub id")
    parser.add_argument("texts", metavar="TEXT", nargs="*", default=[], help="texts; - or none: all of standard input")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--count", action="store_true", help="print only the number of tokens")
    form.add_argument("--ids", action="store_true", help="print only the token ids, one text per line")
    form.add_argument("--decode", action="store_true", help="decode: TEXT is token ids")
    parser.add_argument("--chat", action="store_true", help="apply the chat template to each text as a user's message")
    parser.add_argument("--revision", metavar="TEXT", help="branch, tag or commit of a hub id")


def run(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    texts = arguments.texts or [_STANDARD_INPUT]
    if arguments.decode and arguments.chat:
        parser.error("--chat is for texts, not for numbers (--decode)")
    if _STANDARD_INPUT in texts and sys.stdin is None:
        parser.error("standard input is closed; give a text as an argument")
    tokenizer = Tokenizer.from_pretrained(arguments.model, arguments.revision)
    for text in map(_read, texts):
        print(_decoded(tokenizer, text, parser) if arguments.decode else _shown(tokenizer, text, arguments))
    return 0


def _read(text: str) -> str:
    if text != _STANDARD_INPUT:
        return text
    return sys.stdin.buffer.read().decode(errors="replace")


def _shown(tokenizer: Tokenizer, text: str, arguments: argparse.Namespace) -> str:
    if arguments.chat:
        ids = tokenizer.apply_chat_template([{"role": "user", "content": text}], tokenize=True)
    else:
        ids = tokenizer.encode(text)
    if arguments.count:
        return str(len(ids))
    if arguments.ids:
        return " ".join(map(str, ids))
    width = max((len(str(each)) for each in ids), default=1)
    texts = (json.dumps(tokenizer.decode_token(each), ensure_ascii=False) for each in ids)
    rows = [f"{each:>{width}}  {on_one_line(text)}" for each, text in zip(ids, texts, strict=True)]
    return "\n".join([*rows, f"{len(ids):,} token{'' if len(ids) == 1 else 's'}"])


def _decoded(tokenizer: Tokenizer, text: str, parser: argparse.ArgumentParser) -> str:
    try:
        ids = [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        parser.error(f"--decode takes numbers such as 15 3 8, and not {text!r}")
    if unknown := [each for each in ids if not 0 <= each < len(tokenizer)]:
        raise RequestError(f"{unknown[0]} is no token: they are numbered from 0 to {len(tokenizer) - 1:,}.")
    return tokenizer.decode(ids, skip_special_tokens=False)
