"""A real Chromium without a window, driven by a pipe, and the server's page in it: opened, asked, and looked over.

A test that is about the page and not about a model gives the answers itself: `answer_with` puts them in place of the
server's, piece by piece, and notes what was sent.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
# A bound for machines that are busy with other things.
_SECONDS = 120.0
_KEYS = {"Enter": 13, "Escape": 27, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39}
_FLAGS = (
    "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
    "--no-first-run", "--disable-extensions", "--disable-background-networking", "--hide-scrollbars",
    # Code that V8 has optimized leaves out of the count how often it ran.
    "--js-flags=--no-opt --no-maglev",
)  # fmt: skip


class Browser:
    def __init__(self, reads: int, writes: int) -> None:
        self._reads, self._writes = reads, writes
        self._rest = b""
        self._number = 0
        self.events: list[dict[str, Any]] = []

    def open(self, address: str, *, width: int = 1180, height: int = 760, is_dark: bool = False) -> "Page":
        """As a person without a past: with a storage of its own."""
        context = self.ask("Target.createBrowserContext")["browserContextId"]
        target = self.ask("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, context)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.ask(f"{domain}.enable")
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        page.ask("Emulation.setDeviceMetricsOverride", **metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        page.ask("Emulation.setEmulatedMedia", features=[scheme])
        page.ask("Page.navigate", url=address)
        page.until("document.readyState === 'complete'")
        return page

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._writes, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + _SECONDS
        while True:
            answer = self._next(deadline)
            if answer.get("id") != self._number:
                self.events.append(answer)
            elif "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            else:
                return answer["result"]

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._reads], [], [], max(deadline - time.monotonic(), 0))[0]:
                raise TimeoutError("Chromium has not answered.")
            if not (piece := os.read(self._reads, 1 << 20)):
                raise RuntimeError("Chromium has ended.")
            self._rest += piece
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)


class Page:
    def __init__(self, browser: Browser, session: str, context: str) -> None:
        self._browser = browser
        self._session = session
        self._context = context

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **params)

    def value(self, expression: str) -> Any:
        """Evaluate a line of JavaScript and return its value in JSON's types."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']['exception'].get('description')}")
        return found["result"].get("value")

    def until(self, expression: str, seconds: float = _SECONDS) -> Any:
        deadline = time.monotonic() + seconds
        while not (value := self.value(expression)):
            assert time.monotonic() < deadline, f"not within {seconds} s: {expression}"
            time.sleep(0.02)
        return value

    def click(self, selector: str) -> None:
        """As a person does: where it is seen."""
        box = self.value(
            f"(() => {{ const box = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask("Input.dispatchMouseEvent", type=kind, x=box[0], y=box[1], button="left", clickCount=1)

    def type(self, selector: str, text: str) -> None:
        self.value(f"document.querySelector({json.dumps(selector)}).focus()")
        self.ask("Input.insertText", text=text)

    def press(self, key: str) -> None:
        named = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **text, **named)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **named)

    def reload(self) -> None:
        self.value("window.isOld = true")
        self.ask("Page.reload")
        self.until("!window.isOld && document.readyState === 'complete'")

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return the browser's events of that name about this page."""
        self.value("0")
        own = [event for event in self._browser.events if event.get("sessionId") == self._session]
        return [event["params"] for event in own if event["method"] == method]

    def close(self) -> None:
        self._browser.ask("Target.disposeBrowserContext", browserContextId=self._context)


@contextmanager
def browser() -> Iterator[Browser]:
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()

    def as_it_wants_them() -> None:
        first, second = os.dup(theirs_in), os.dup(theirs_out)
        os.dup2(first, 3)
        os.dup2(second, 4)

    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            preexec_fn=as_it_wants_them, pass_fds=(3, 4), start_new_session=True,
            env={**os.environ, "HOME": folder, "TMPDIR": folder},
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Browser(ours_in, ours_out)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(ours_in)
            os.close(ours_out)


# --- the server's page ------------------------------------------------------------------------------------------------

STUB = """(() => {
  window.plainFetch ??= window.fetch;
  window.sent ??= [];
  window.answers ??= [];
  window.fetch = (where, asked) => {
    if (!/completions/.test(where)) return plainFetch(where, asked);
    sent.push({ where, ...JSON.parse(asked.body) });
    const { status, pieces, body, held, breaks } = answers.length > 1 ? answers.shift() : answers[0];
    if (status === 0) return Promise.reject(new TypeError("Failed to fetch"));
    if (status) return Promise.resolve(new Response(body, { status, headers: { "Content-Type": "application/json" } }));
    const stream = new ReadableStream({ async start(controller) {
      const say = (text) => controller.enqueue(new TextEncoder().encode(text));
      asked.signal?.addEventListener("abort", () => controller.error(new DOMException("", "AbortError")));
      for (const piece of pieces) {
        say(`data: ${JSON.stringify(piece)}\\n\\n`);
        await new Promise((resolve) => setTimeout(resolve));
      }
      if (held) return;
      if (breaks) return controller.error(new TypeError("network error"));
      say("data: [DONE]\\n\\n");
      controller.close();
    } });
    return Promise.resolve(new Response(stream));
  };
})()"""


def opened(chromium: Browser, address: str, **seen: Any) -> Page:
    page = chromium.open(address + "/", **seen)
    page.until("document.querySelector('#model').value === 'pocket'")
    return page


def assert_nothing_from_elsewhere(page: Page, address: str, *, expects_refusals: bool = False) -> None:
    """Neither a request to another address, nor an error of its own, nor a breach of its own policy."""
    asked = [event["request"]["url"] for event in page.told("Network.requestWillBeSent")]
    assert asked and all(url.startswith((address, "data:", "about:", "blob:")) for url in asked), asked
    assert page.told("Runtime.exceptionThrown") == []
    errors = [event["entry"] for event in page.told("Log.entryAdded") if event["entry"]["level"] == "error"]
    assert [each["text"] for each in errors if not (expects_refusals and each["source"] == "network")] == []


def text(content: str, **further: Any) -> dict:
    return {"choices": [{"delta": {"content": content, **further}, "finish_reason": None}]}


def end(reason: str = "stop") -> dict:
    return {"choices": [{"delta": {}, "finish_reason": reason}]}


def whole(content: str) -> dict:
    """An answer in two pieces, with its usage."""
    half = len(content) // 2
    usage = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 34}}
    return {"pieces": [text(content[:half]), text(content[half:]), end(), usage]}


def refusal(status: int, message: str) -> dict:
    return {"status": status, "body": json.dumps({"error": {"message": message, "type": "x", "code": status}})}


def answer_with(page: Page, *answers: dict) -> None:
    """In turn; the last one again and again."""
    page.value(f"{STUB}; answers = {json.dumps(answers)}; 0")


def ask(page: Page, question: str, *, waits: bool = True) -> None:
    page.type("#text", question)
    page.press("Enter")
    if waits:
        page.until("answering.size === 0")
        # It waits for the answer's own transaction: a reload in that moment would undo it.
        page.value("database && settled(records('readonly').count())")


def texts(page: Page, selector: str) -> list[str]:
    return page.value(f"[...document.querySelectorAll({json.dumps(selector)})].map((each) => each.textContent)")


def sent(page: Page) -> list[dict]:
    """Bodies of what the page has asked since answers were the test's."""
    return page.value("sent")


def labelled(label: str) -> str:
    return f'#messages [aria-label="{label}"]'
