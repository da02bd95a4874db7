"""The page as tests use it: opened, asked, told answers of the test's own choice, and looked over at the end.

A test that is about the page and not about a model gives the answers itself: `answer_with` puts them in place of the
server's, piece by piece, and notes what was sent.
"""

import json
from typing import Any

from builders.browser import Browser, Page

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
