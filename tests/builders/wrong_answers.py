"""Draws a hub's answers that have parts, lengths, forms or statuses wrong, for a while or always."""

import gzip
from collections.abc import Callable

from builders.hub import Answer, Request
from hypothesis import strategies as st

Change = Callable[[Answer], Answer]


def _with(name: str, value: str) -> Change:
    return lambda answer: answer._replace(headers=answer.headers | {name: value})


def _part(answer: Answer, first: int, total: int) -> Answer:
    return _with("Content-Range", f"bytes {first}-{first + len(answer.body) - 1}/{total}")(answer)


def _multipart(answer: Answer) -> Answer:
    head = b"--x\r\nContent-Range: %s\r\n\r\n" % answer.headers.get("Content-Range", "").encode()
    headers = {"Content-Type": "multipart/byteranges; boundary=x"}
    return answer._replace(headers=headers, body=head + answer.body + b"\r\n--x--")


def _ways_with_parts(content: bytes) -> dict[str, Change]:
    """What an answer to who asks for a part may be."""

    def whole(answer: Answer) -> Answer:
        return answer._replace(headers={}, body=content)

    return {
        "as asked for": lambda answer: answer,
        "the whole": lambda answer: whole(answer)._replace(status=200),
        "the whole as a part": lambda answer: _part(whole(answer), 0, len(content)),
        "a later part": lambda answer: _part(answer, 200_000, len(content)),
        "a part of another place": lambda answer: _part(answer, 0, 5),
        "a part of no place": lambda answer: answer._replace(headers={}),
        "a part in words": _with("Content-Range", "bytes of the file"),
        "several parts": _multipart,
        "a shorter part": lambda answer: answer._replace(body=answer.body[:50_000]),
        "none": lambda answer: answer._replace(status=416, headers={}, body=b""),
    }


def _chunked(answer: Answer) -> Answer:
    chunk = b"%x\r\n%s\r\n" % (len(answer.body), answer.body) if answer.body else b""
    return _with("Transfer-Encoding", "chunked")(answer._replace(body=chunk + b"0\r\n\r\n"))


def _compressed(answer: Answer) -> Answer:
    return _with("Content-Encoding", "gzip")(answer._replace(body=gzip.compress(answer.body, 1)))


def _of_length(change: int) -> Change:
    def changed(answer: Answer) -> Answer:
        length = str(max(0, len(answer.body) + change))
        return _with("Content-Length", length)(answer._replace(cut=len(answer.body)))

    return changed


_FORMS: dict[str, Change] = {
    "as it is": lambda answer: answer, "chunked": _chunked, "compressed": _compressed,
    "said to be longer": _of_length(9), "said to be shorter": _of_length(-9),
    "of a length in words": _with("Content-Length", "x"),
    "said to be compressed": _with("Content-Encoding", "gzip"),
    "said to be compressed thrice": _with("Content-Encoding", "gzip, gzip, gzip"),
}  # fmt: skip
_STATUSES = (0, 0, 0, 201, 204, 302, 304, 400, 401, 403, 404, 408, 416, 429, 500, 503)


@st.composite
def wrong_answers(draw: st.DrawFn, name: str, content: bytes) -> Callable[[Request, Answer], Answer]:
    """How a hub answers to who asks for that file, for `Hub.told`."""
    ways = _ways_with_parts(content)
    change_part, change_form = ways[draw(st.sampled_from(list(ways)))], _FORMS[draw(st.sampled_from(list(_FORMS)))]
    is_always_a_part, left = draw(st.booleans()), draw(st.sampled_from((1, 2, 10**6)))
    status, cut = draw(st.sampled_from(_STATUSES)), draw(st.none() | st.integers(0, 300_000))

    def told(request: Request, answer: Answer) -> Answer:
        nonlocal left
        if not request.path.endswith(name) or answer.status not in (200, 206) or left == 0:
            return answer
        left -= 1
        if status:
            return Answer(status, {"Retry-After": "9" * 9} if left > 2 else {}, b"[1]")
        if answer.status == 206 or is_always_a_part:
            answer = change_part(answer._replace(status=206))
        answer = change_form(answer)
        return answer if cut is None else answer._replace(cut=cut)

    return told
