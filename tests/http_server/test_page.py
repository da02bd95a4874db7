"""The page at `/` in a real Chromium: a person asks, reads, stops, looks at the plots; by day, by night, on a phone."""

import json
from collections.abc import Iterator

import pytest
from builders.browser import CHROMIUM, Browser, Page, browser
from builders.watching import wait_until

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="THE PAGE IS NOT TESTED: there is no Chromium here (`apt install chromium`)"
)

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ANSWERED = "document.querySelector('.message.assistant small')"
# What the page asks for goes on to the end of the context.
NEVER_ENDING = """{
    const plain = window.fetch;
    const endless = (asked) => ({ ...asked, body: JSON.stringify({ ...JSON.parse(asked.body), ignore_eos: true }) });
    window.fetch = (where, asked) => plain(where, asked?.body ? endless(asked) : asked);
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def page(chromium, server) -> Iterator[Page]:
    page = opened(chromium, server)
    yield page
    assert_nothing_from_elsewhere(page, server)
    page.close()


def opened(chromium: Browser, server, **seen: object) -> Page:
    page = chromium.open(server.address + "/", **seen)
    page.until("document.querySelector('#model').value === 'pocket'")
    page.value("document.querySelector('#temperature').value = '0'")
    return page


def assert_nothing_from_elsewhere(page: Page, server) -> None:
    """Neither a request to another address, nor an error in its console, nor a breach of its own policy."""
    asked = [event["request"]["url"] for event in page.told("Network.requestWillBeSent")]
    assert asked and all(url.startswith((server.address, "data:", "about:")) for url in asked), asked
    assert page.told("Runtime.exceptionThrown") == []
    assert [event["entry"]["text"] for event in page.told("Log.entryAdded") if event["entry"]["level"] == "error"] == []


def ask(page: Page, question: str) -> None:
    page.type("#text", question)
    page.press_enter()


def test_a_question_is_answered_and_its_tokens_are_counted(page):
    ask(page, "What is 2 + 3?")
    summary = page.until(f"{ANSWERED}?.textContent")
    assert "tokens in" in summary and "first token after" in summary
    assert page.value("document.querySelector('.message.user').textContent") == "What is 2 + 3?"
    assert page.value("document.querySelector('.message.assistant > div').textContent.trim()") == "5"


def test_a_conversation_goes_on_and_begins_anew(page):
    ask(page, "What is 2 + 3?")
    page.until(f"{ANSWERED}?.textContent")
    ask(page, "What is 4 + 4?")
    page.until("document.querySelectorAll('.message.assistant small').length === 2")
    page.click("#clear")
    assert page.value("document.querySelectorAll('.message').length") == 0


def test_thoughts_are_folded_and_open_with_a_click(page):
    ask(page, "What is 487 + 256?")
    page.until(f"{ANSWERED}?.textContent")
    assert page.value("document.querySelector('.message details').open") is False
    assert page.value("document.querySelector('.message .thought').textContent.length") > 0
    assert "743" in page.value("document.querySelector('.message.assistant > div').textContent")
    page.click(".message summary")
    assert page.value("document.querySelector('.message details').open") is True


def test_a_call_of_a_tool_is_shown(page):
    page.type("#tools", json.dumps([WEATHER]))
    ask(page, "What's the weather in Paris?")
    assert "tool_calls" in page.until(f"{ANSWERED}?.textContent")
    call = page.value("document.querySelector('.message.assistant pre').textContent")
    assert call.startswith("get_weather(") and "Paris" in call


def test_tools_that_are_no_json_are_told_and_nothing_is_sent(page):
    page.type("#tools", "[{")
    ask(page, "hi")
    assert "JSON" in page.until("document.querySelector('.message .wrong')?.textContent")


def test_the_stop_button_ends_the_answer_here_and_in_the_engine(page, server):
    page.value(NEVER_ENDING)
    ask(page, "Tell me everything.")
    page.until("document.querySelector('.message.assistant')?.textContent.length > 20")
    page.click("#stop")
    assert "stopped" in page.until(f"{ANSWERED}?.textContent")
    page.until("!document.querySelector('#send').hidden")
    wait_until(lambda: server.stats().running == 0, 2, "the engine has ended it")


def test_what_the_engine_does_is_plotted(page):
    page.click("#tab-live")
    assert page.value("document.querySelector('#view-talk').hidden") is True
    body = json.dumps({"prompt": "What is", "max_tokens": 40, "ignore_eos": True, "stream": True})
    asked = {"method": "POST", "headers": {"Content-Type": "application/json"}, "body": body}
    # Again and again: what happens before the page's first look at the engine is plotted nowhere.
    once = f"fetch('/v1/completions', {json.dumps(asked)}).then((reply) => reply.text())"
    page.value(f"(async () => {{ for (;;) await {once}; }})() && true")
    titles = page.value("[...document.querySelectorAll('figcaption')].map((each) => each.firstChild.textContent)")
    assert titles == [
        "Tokens per second", "Requests", "KV blocks in use", "Prefix hits", "Step", "Time to first token"
    ]  # fmt: skip
    shown = "/\\d/.test(each.querySelector('strong').textContent) || each.textContent.includes('Prefix')"
    page.until(f"[...document.querySelectorAll('figure')].every((each) => {shown})")
    assert page.value("document.querySelectorAll('figure path[d]').length") >= 6


def test_it_is_dark_where_the_person_wants_it_dark(chromium, server):
    def ground(page: Page) -> int:
        colours = page.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
        return sum(colours)

    day, night = opened(chromium, server), opened(chromium, server, is_dark=True)
    assert ground(day) > 3 * 200 and ground(night) < 3 * 60
    day.close()
    night.close()


def test_it_fits_a_phone(chromium, server):
    page = opened(chromium, server, width=390, height=800)
    assert page.value("document.querySelector('#settings').open") is False
    ask(page, "What is 2 + 3?")
    page.until(f"{ANSWERED}?.textContent")
    for view in ("#tab-talk", "#tab-live"):
        page.click(view)
        assert page.value("document.scrollingElement.scrollWidth <= innerWidth")
    page.click("#tab-talk")
    place = "document.querySelector('#send').getBoundingClientRect()"
    right, bottom, height = page.value(f"(({{right, bottom, height}}) => [right, bottom, height])({place})")
    assert right <= 390 and bottom <= 800 and height >= 32
    page.close()
