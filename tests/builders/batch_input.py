"""What clients send for a batch: the lines of its input, and the form in which a file is uploaded."""

import json
from typing import Any

CHATS = "/v1/chat/completions"
MULTIPART = "multipart/form-data; boundary=B"


def line(name: str, url: str = CHATS, method: str = "POST", **body: Any) -> str:
    asked = {"/v1/completions": {"prompt": [5, 6]}, "/v1/responses": {"input": "one"}}.get(
        url, {"messages": [{"role": "user", "content": name}], "max_tokens": 4}
    )
    return json.dumps({"custom_id": name, "method": method, "url": url, "body": {"model": "pocket", **asked, **body}})


def form(content: bytes, purpose: bytes = b"batch") -> bytes:
    return (
        b'--B\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n' + purpose + b"\r\n"
        b'--B\r\nContent-Disposition: form-data; name="file"; filename="a"\r\nContent-Type: x/y\r\n\r\n'
        + content + b"\r\n--B--\r\n"
    )  # fmt: skip
