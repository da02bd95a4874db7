"""The page at `/`: one file with its own style and script, which may load nothing from anywhere else."""

import hashlib
import re
from base64 import b64encode
from functools import cache
from pathlib import Path

from ..reply import Reply

_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@cache
def page() -> Reply:
    text = Path(__file__).with_name("index.html").read_text(encoding="utf-8")
    allowed = {kind: _digest(inside) for kind, inside in _INLINE.findall(text)}
    policy = (
        f"default-src 'none'; script-src {allowed['script']}; style-src {allowed['style']}; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    headers = [(b"content-security-policy", policy.encode()), (b"referrer-policy", b"no-referrer")]
    return Reply(text.encode(), b"text/html; charset=utf-8", headers=headers)


def _digest(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
