"""The page at `/`: one file with its own style and script, which may load nothing from anywhere else.

It is written as several files (`style/`, `script/`), which are inserted into `index.html` in the order below: scripts
share one scope, and each uses only names from earlier ones, except in calls made after the last one is loaded.
`BOUNDS`, before all scripts, has the bounds of the parameters on the page.
"""

import hashlib
from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from ....protocol.fields.described import rules_of
from ....protocol.fields.rules import MOST
from ....protocol.parameters.sampling import SamplingParams
from ..answers.reply import Reply

_FOLDER = Path(__file__).parent
_STYLES = ("base", "controls", "talk", "markdown", "live")
_SCRIPTS = (
    "elements", "errors", "server", "pictures", "videos",
    "markdown/symbols", "markdown/math", "markdown/colours", "markdown/emphasis", "markdown/links", "markdown/inline",
    "markdown/notes", "markdown/blocks", "markdown/drawing", "settings", "record", "storage",
    "conversations", "history", "messages", "probabilities", "answers", "edits", "files", "composer", "sidebar",
    "transfer", "notebook", "plot", "live", "models", "views", "start",
)  # fmt: skip


@cache
def page() -> Reply:
    style = _joined("style", _STYLES, "css")
    bounds = msgspec.json.encode(_bounds()).decode()
    script = f'"use strict";\nconst BOUNDS = {bounds};\n' + _joined("script", _SCRIPTS, "js")
    text = (_FOLDER / "index.html").read_text(encoding="utf-8")
    text = text.replace("<style></style>", f"<style>{style}</style>")
    text = text.replace("<script></script>", f"<script>{script}</script>")
    policy = (
        f"default-src 'none'; script-src {_digest(script)}; style-src {_digest(style)}; connect-src 'self'; "
        "img-src data:; media-src blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    headers = [(b"content-security-policy", policy.encode()), (b"referrer-policy", b"no-referrer")]
    return Reply(text.encode(), b"text/html; charset=utf-8", headers=headers)


def _bounds() -> dict[str, dict[str, Any]]:
    """Attributes of number fields in a form, by parameter; empty if only an integer's range bounds it."""
    words = {"ge": "min", "le": "max"}
    return {
        name: {words[each]: bound for each, bound in rule.bounds.items() if each in words and abs(bound) < MOST}
        for name, rule in rules_of(SamplingParams).items()
        if rule.bounds
    }


def _joined(folder: str, names: tuple[str, ...], ending: str) -> str:
    return "\n".join((_FOLDER / folder / f"{name}.{ending}").read_text(encoding="utf-8") for name in names)


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
