"""The page in a real Chromium before a real model: a person asks, stops, writes on, and looks at the engine.

Of all tests with a browser only the first one here and those of `test_page_markdown.py` are quick ones.
"""

import json
import re
from collections import Counter

import pytest
from builders.page import Page, answer_with, ask, assert_nothing_from_elsewhere, opened, texts, whole
from builders.served import served
from builders.watching import wait_until

from penstock.frontend.http.page import page as page_of_all_files

SIZES = {"phone": (375, 700), "tablet": (768, 1000), "desk": (1440, 900)}
ENDLESS = json.dumps({"prompt": "What is", "max_tokens": 1900, "ignore_eos": True, "stream": True})
# What the page asks for goes on to the end of the context.
NEVER_ENDING = "$('further').value = JSON.stringify({ ignore_eos: true })"
EACH_HAS_A_CURSOR = "document.querySelector('.plot:not([hidden]):not(:has(.cursor))') === null"
BOX = "(({left, right, top, bottom}) => ({left, right, top, bottom}))(%s.getBoundingClientRect())"


def keep_busy(page: Page) -> None:
    """Two requests run at any time, until the page is closed: each that ends is followed by another."""
    asked = json.dumps({"method": "POST", "headers": {"Content-Type": "application/json"}, "body": ENDLESS})
    once = f"fetch('/v1/completions', {asked}).then((reply) => reply.text(), () => 0)"
    page.value(f"[1, 2].forEach(async () => {{ for (;;) await {once}; }})")


def test_each_name_of_its_scripts_which_share_one_scope_is_declared_once():
    """A second time would be an error of syntax, and nothing of the page would work; seen without a browser."""
    declaration = re.compile(r"^(?:const|let|class|(?:async )?function\*?) (\w+)", re.MULTILINE)
    names = Counter(declaration.findall(page_of_all_files().body.decode()))
    assert "start" in names and [name for name, times in names.items() if times > 1] == []


def test_a_question_is_answered_and_what_it_took_is_told(page):
    ask(page, "What is 2 + 3?")
    assert texts(page, ".message.user .body") == ["What is 2 + 3?"]
    assert page.value("document.querySelector('.message.assistant .body').textContent.trim()")
    [summary] = texts(page, ".message.assistant small")
    assert "tokens in" in summary and "first token after" in summary
    assert " of 2,048 tokens" in texts(page, "#context")[0]
    assert (
        page.value("$('temperature').placeholder")
        == f"Model default: {page.value('card().default_parameters.temperature')}"
    )


STOPS = {
    "button": "$('stop').click()",
    "Escape": "document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }))",
}


@pytest.mark.long
@pytest.mark.parametrize("how", STOPS)
def test_an_answer_is_stopped_here_and_in_the_engine(page, server, how):
    page.value(NEVER_ENDING)
    # At its first words, in the page itself: a test that looks from outside may come when the answer is complete.
    page.value(f"(() => {{ const plain = merge; merge = (...piece) => {{ plain(...piece); {STOPS[how]}; }}; }})()")
    ask(page, "Tell me everything.")
    assert "stopped" in texts(page, ".message.assistant small")[0]
    assert page.value("$('stop').hidden && !$('send').hidden") is True
    wait_until(lambda: server.stats().running == 0, "the engine has ended it")


@pytest.mark.long
def test_an_answer_that_was_cut_goes_on_where_it_ended(page):
    page.value(f"$('max_tokens').value = '3'; {NEVER_ENDING}; 0")
    ask(page, "What is 487 + 256?")
    assert "stopped at max tokens" in texts(page, ".message.assistant small")[0]
    page.value("current.messages.at(-1).content ||= 'It is'; showConversation()")
    before = page.value("current.messages.at(-1).content")
    page.value("$('max_tokens').value = '6'; document.querySelector('[aria-label^=\"Continue\"]').click()")
    page.until("answering.size === 0")
    after = page.value("current.messages.at(-1).content")
    assert page.value("current.messages.at(-1).error ?? ''") == ""
    assert after.startswith(before) and page.value("current.messages.length") == 2


@pytest.mark.long
def test_the_notebook_goes_on_with_a_text_as_it_stands_and_takes_it_back(page):
    page.click("#tab-notebook")
    page.value(f"$('max_tokens').value = '12'; {NEVER_ENDING}; 0")
    page.type("#page-text", "Once upon")
    page.click("#continue")
    assert "12 out" in page.until("$('page-state').textContent.includes(' out ') && $('page-state').textContent")
    assert page.value("$('page-text').value").startswith("Once upon")
    page.reload()
    assert len(page.until("!$('view-notebook').hidden && $('page-text').value")) > len("Once upon")


@pytest.mark.long
def test_plots_have_axes_with_units_and_the_values_at_the_moment_that_is_pointed_at(page):
    page.click("#tab-live")
    keep_busy(page)
    page.until("plots[0].points.length >= 2 && plots[3].points.some((point) => point.values[0] !== null)")
    page.value("for (const plot of plots) plot.draw()")
    assert len(texts(page, ".plot:not([hidden]) .name")) >= 6  # and one more once there have been drafts
    for number in range(6):
        marks = texts(page, f".plot:nth-child({number + 1}) text.value")
        assert len(marks) == 3 and marks[0].startswith("0"), marks
    assert "ms" in texts(page, ".plot:nth-child(3) text.value")[1]
    times = texts(page, ".plot:nth-child(1) text.time")
    assert times[0] == "now" and all(each.startswith("−") for each in times[1:]), times
    # The newest value lies at the right edge, and the first at the left: the time that is shown is the one there is.
    assert page.value("plots[0].span === Math.max(10000, plots[0].points.at(-1).at - plots[0].points[0].at)")
    middle = page.value(BOX % "plots[0].svg")
    page.ask("Input.dispatchMouseEvent", type="mouseMoved", x=middle["right"] - 20, y=middle["top"] + 40)
    page.until(EACH_HAS_A_CURSOR)
    assert texts(page, ".plot time")[0].count(":") == 2
    page.value("document.querySelector('.plot').focus()")
    page.press("ArrowLeft")
    page.until(EACH_HAS_A_CURSOR)
    # The hour stays over a reload, and what it came to is told at rest.
    points = page.value("plots[0].points.length")
    page.reload()
    page.until(f"before && plots[0].points.length >= {points} && !$('view-live').hidden")  # it has looked once more
    page.value("totals[0].generated_tokens_total -= 10; totals[0].time_to_first_token_seconds_count -= 1; 0")
    assert "answer" in page.value("lastHour()") and "on average" in page.value("lastHour()")


@pytest.mark.long
def test_requests_that_run_are_listed_and_stopped_by_a_button(chromium, server):
    page = opened(chromium, server.address)
    page.click("#tab-live")
    keep_busy(page)
    page.until("document.querySelectorAll('#requests [data-state=generating]').length === 2")
    cells = texts(page, "#requests tr:first-child td")
    assert cells[1:4] == ["completion", "pocket", "answering"]
    assert int(cells[5].replace(",", "")) > 0 and cells[7].endswith("s")
    name = page.value("$('requests').rows[0].dataset.id")
    page.value(f"document.querySelector('[data-id={json.dumps(name)}] .stop').click()")
    page.until(f"!document.querySelector('[data-id={json.dumps(name)}]')")
    assert texts(page, "#toast") == [""]
    # It may have ended by itself in the same moment, which the browser notes as a refusal.
    assert_nothing_from_elsewhere(page, server.address, expects_refusals=True)
    page.close()
    wait_until(lambda: server.stats().running == 0, "what a closed page has asked has ended")


@pytest.mark.long
def test_a_server_with_keys_is_told_one_and_it_is_gone_with_the_tab(chromium, pocket, keys):
    with served(*pocket, **keys) as server:
        page = chromium.open(server.address + "/")
        for key in ("wrong", "second"):
            page.until("$('key-dialog').open")
            page.type("#key", key)
            page.press("Enter")
        page.until("$('model').value === 'pocket'")
        ask(page, "What is 2 + 3?")
        assert page.value("document.querySelector('.complaint')") is None
        assert page.value("JSON.stringify({ ...localStorage })").count("second") == 0
        assert_nothing_from_elsewhere(page, server.address, expects_refusals=True)
        page.close()


@pytest.mark.long
@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("size", SIZES)
def test_the_field_and_the_newest_answer_stay_in_view_however_long_the_talk(chromium, server, size, is_dark):
    width, height = SIZES[size]
    page = opened(chromium, server.address, width=width, height=height, is_dark=is_dark)
    ground = page.value("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert sum(ground) < 3 * 60 if is_dark else sum(ground) > 3 * 200
    long = "A line that is long enough to be broken into two or three on a phone, `code_that_cannot_be_broken`.\n\n" * 6
    turns = json.dumps([{"role": "user", "content": "Question"}, {"role": "assistant", "content": long}] * 30)
    page.value(f"for (const each of {turns}) add(current, each); showConversation()")
    answer_with(page, whole(long))
    ask(page, "What is 2 + 3?")
    field, newest = (page.value(BOX % f"document.querySelector({json.dumps(which)})")
                     for which in ("#composer", ".message:last-child"))  # fmt: skip
    assert field["left"] >= 0 and field["right"] <= width and field["bottom"] <= height
    assert newest["bottom"] <= field["top"] + 1 and newest["bottom"] > field["top"] - 120
    for view in ("notebook", "live", "talk"):
        page.click(f"#tab-{view}")
        assert page.value("document.scrollingElement.scrollWidth <= innerWidth"), view
        assert page.value("document.scrollingElement.scrollHeight <= innerHeight"), view
    page.click("#tab-live")
    plots = page.value(BOX % "$('plots')")
    assert plots["left"] < 20 and width - plots["right"] < 20, "the live view fills the window's width"
    assert_nothing_from_elsewhere(page, server.address)
    page.close()
