"""Conversations on the page in a real Chromium: shown, edited, tried again, kept, searched; and what fails.

The answers are the test's own, so that nothing depends on what a model says.
"""

import json

import pytest
from builders.page import (
    Page,
    answer_with,
    ask,
    assert_nothing_from_elsewhere,
    end,
    labelled,
    opened,
    refusal,
    sent,
    text,
    texts,
    whole,
)

pytestmark = pytest.mark.long

ANSWERS = ".message.assistant .body"
CODE = "Here:\n\n```python\nx = 1\n```\n\n- **one**\n- two"


@pytest.fixture
def page(page) -> Page:
    answer_with(page, whole("First"), whole("Second"), whole("Third"))
    return page


def roles_and_texts(request: dict) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in request["messages"]]


def test_markdown_is_drawn_as_it_comes_and_code_is_copied(page):
    answer_with(page, {"pieces": [text(each) for each in CODE[:24]], "held": True}, whole(CODE))
    ask(page, "Show me code", waits=False)
    page.until("document.querySelector('.code')?.textContent.includes('x')")  # the fence isn't closed yet
    page.press("Escape")
    page.until("answering.size === 0")
    page.click(labelled("Try again"))
    page.until("answering.size === 0")
    assert texts(page, ".message li strong") == ["one"]
    clipboard = "{ value: { writeText: (text) => { window.copied = text; } } }"
    page.value(f"Object.defineProperty(navigator, 'clipboard', {clipboard})")
    page.click(".copy")
    assert page.until("window.copied") == "x = 1"
    page.until("document.querySelector('.copy').textContent === 'Copied'")


def test_thoughts_are_folded_with_how_long_they_took(page):
    thought = {"choices": [{"delta": {"reasoning_content": "Let me see"}, "finish_reason": None}]}
    answer_with(page, {"pieces": [thought, text("5"), end()]})
    ask(page, "What is 2 + 3?")
    assert page.value("document.querySelector('.thought').open") is False
    assert texts(page, ".thought summary")[0].startswith("Thought for ")
    page.click(".thought summary")
    assert page.value("document.querySelector('.thought').open") is True
    assert texts(page, ".thought > div") == ["Let me see"]


def test_a_tool_is_called_and_its_result_goes_to_the_model(page):
    call = {"index": 0, "id": "call_1", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
    delta = {"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": None}]}
    answer_with(page, {"pieces": [delta, end("tool_calls")]}, whole("It is warm."))
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
    page.value(f"$('tools').value = {json.dumps(json.dumps([tool]))}; 0")
    ask(page, "What's the weather in Paris?")
    assert texts(page, ".call") == ['get_weather({"city": "Paris"})']
    page.value("document.querySelector('.results textarea').value = '21 degrees'")
    page.click(".results button")
    page.until("answering.size === 0 && current.messages.length === 4")
    first, second = sent(page)
    assert first["tools"] == [tool]
    assert second["messages"][1]["tool_calls"][0]["function"] == call["function"]
    assert second["messages"][2] == {"role": "tool", "content": "21 degrees", "tool_call_id": "call_1"}
    assert texts(page, ANSWERS)[-1] == "It is warm."


def test_a_question_is_edited_and_asked_again_and_the_first_branch_stays(page):
    ask(page, "One")
    ask(page, "Two")
    page.value("document.querySelector('.message.user [aria-label^=Edit]').click()")
    page.value("document.querySelector('.edited').value = 'One anew'")
    page.press("Enter")
    page.until("answering.size === 0 && current.messages.length === 6")
    assert roles_and_texts(sent(page)[-1]) == [("user", "One anew")]
    assert texts(page, ANSWERS) == ["Third"]
    assert texts(page, ".branches") == ["2 / 2"]
    page.value(f"document.querySelector('{labelled('Previous version')}').click()")
    assert texts(page, ANSWERS) == ["First", "Second"]


def test_an_answer_is_tried_again_and_both_stay(page):
    ask(page, "One")
    page.click(labelled("Try again"))
    page.until("answering.size === 0 && current.messages.length === 3")
    assert [roles_and_texts(each) for each in sent(page)] == [[("user", "One")]] * 2
    assert (texts(page, ANSWERS), texts(page, ".branches")) == (["Second"], ["2 / 2"])
    page.click(labelled("Previous version"))
    assert texts(page, ANSWERS) == ["First"]


def test_what_failed_is_tried_again_and_never_sent_as_history(page):
    half = {"pieces": [text("Half an ans")], "breaks": True}
    answer_with(page, whole("First"), half, whole("Third"), whole("Fourth"))
    for question in ("One", "Two", "Three"):
        ask(page, question)
    assert roles_and_texts(sent(page)[-1]) == [("user", "One"), ("assistant", "First"), ("user", "Three")]
    assert "connection was lost" in texts(page, ".complaint")[0]
    page.value("document.querySelector('.complaint button').click()")
    page.until("answering.size === 0 && current.messages.length === 7")
    assert roles_and_texts(sent(page)[-1])[-1] == ("user", "Two")
    assert texts(page, ANSWERS) == ["First", "Fourth"]


FAILURES = {
    "unreachable": ({"status": 0}, "can't be reached"),
    "no json": ({"status": 502, "body": "<html>Bad Gateway</html>"}, "between this page and the server"),
    "refused": (refusal(400, "max_tokens is 3, and 2 fit."), "max_tokens is 3, and 2 fit."),
    "gone": (refusal(404, "There is no model 'x'."), "can't find"),
    "too large": (refusal(413, "too many"), "Start a new one"),
    "busy": (refusal(429, "1,024 requests wait already."), "too busy"),
    "broken": (refusal(500, "Something failed"), "see its log"),
    "dead": (refusal(503, "Its processes have ended."), "can't answer right now"),
    "stopped": (refusal(499, "This request was stopped."), "live view"),
    "no end": ({"pieces": [text("a")], "breaks": True}, "connection was lost"),
    "error event": ({"pieces": [text("a"), {"error": {"message": "It has ended.", "code": 503}}]}, "can't answer"),
}


def test_every_failure_is_a_sentence_that_says_what_to_do(page):
    answer_with(page, *(answer for answer, _ in FAILURES.values()))
    for number, (name, (_, words)) in enumerate(FAILURES.items()):
        ask(page, f"Question {number}")
        told = texts(page, ".complaint p:first-child")[-1]
        assert words in told and told.endswith("."), (name, told)
        assert not [raw for raw in ("Error", "JSON.parse", "Failed to fetch", "undefined", "{") if raw in told], told


def test_settings_are_in_the_request_and_kept_over_a_reload(page):
    chosen = {"temperature": "0.5", "top_k": "7", "max_tokens": "99", "seed": "3", "system": "Be kind.", "stop": "a\nb",
              "thinking": "off", "theme": "dark", "format": "json_object", "further": '{"min_tokens": 2}'}  # fmt: skip
    for name, value in chosen.items():
        page.value(f"$('{name}').value = {json.dumps(value)}; $('{name}').dispatchEvent(new Event('input'))")
    page.reload()
    page.until("document.querySelector('#model').value === 'pocket'")
    assert page.value(f"({json.dumps(list(chosen))}).map((name) => $(name).value)") == list(chosen.values())
    assert page.value("getComputedStyle(document.documentElement).colorScheme") == "dark"
    answer_with(page, whole("{}"))
    ask(page, "Hi")
    [request] = sent(page)
    wanted = {
        "temperature": 0.5, "top_k": 7, "max_tokens": 99, "seed": 3, "stop": ["a", "b"], "min_tokens": 2,
        "response_format": {"type": "json_object"}, "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    assert {name: request.get(name) for name in wanted} == wanted
    assert roles_and_texts(request) == [("system", "Be kind."), ("user", "Hi")]


def test_a_setting_that_makes_no_sense_is_named_and_nothing_is_sent(page):
    for name, value, words in (
        ("tools", "[{", "not valid JSON"), ("tools", "{}", "a list"), ("further", "[]", "an object"),
        ("temperature", "-1", "from 0 to 5"), ("max_tokens", "1.5", "a whole number"),
        ("max_tokens", "0", "a whole number of at least 1"), ("min_p", "2", "from 0 to 1"),
    ):  # fmt: skip
        page.value(f"$('{name}').value = {json.dumps(value)}; 0")
        ask(page, "Hi")
        assert words in texts(page, ".complaint p:first-child")[-1]
        page.value(f"$('{name}').value = ''; 0")
    assert sent(page) == []


def test_conversations_are_kept_over_a_reload_searched_renamed_deleted_and_brought_back(page):
    ask(page, "About rivers")
    page.click("#new")
    ask(page, "About mountains")
    page.reload()
    page.until("document.querySelectorAll('.conversation').length === 2")
    assert texts(page, ".message .body") == ["About mountains", "Second"]
    page.type("#search", "first")
    assert texts(page, ".conversation") == ["About rivers"]
    page.click(".conversation .open")
    assert texts(page, ".message .body") == ["About rivers", "First"]
    page.click("#rename")
    page.value("document.querySelector('.conversation input').value = 'Water'")
    page.press("Enter")
    assert texts(page, "#title") == ["Water"]
    page.value("document.querySelector('[aria-label=\"Delete Water\"]').click()")
    assert page.value("conversations.size") == 1
    page.click("#toast button")
    assert page.value("current.title") == "Water"
    page.until("readConversations().then((kept) => kept.length === 2)")
    page.reload()
    page.until("document.querySelectorAll('.conversation').length === 2")


def test_what_was_coming_when_the_page_was_left_is_there_and_can_be_tried_again(page):
    answer_with(page, {"pieces": [text("Half an ans")], "held": True})
    ask(page, "One", waits=False)
    page.until("current.messages.at(-1)?.content === 'Half an ans'")
    page.value("keep(current)")
    page.reload()
    page.until("document.querySelectorAll('.message').length === 2")
    assert texts(page, ANSWERS) == ["Half an ans"]
    assert "page closed" in texts(page, ".message.assistant small")[0]
    answer_with(page, whole("All of it"))
    page.click(labelled("Try again"))
    page.until("answering.size === 0 && current.messages.length === 3")
    assert texts(page, ANSWERS) == ["All of it"]


def test_a_browser_without_room_says_so(page):
    full = "() => { throw new DOMException('full', 'QuotaExceededError'); }"
    page.value(f"IDBObjectStore.prototype.put = {full}; Storage.prototype.setItem = {full}; 0")
    ask(page, "One")
    assert "no space left" in texts(page, "#toast")[0]
    page.value("keepSettings()")
    assert "can't store settings" in texts(page, "#toast")[0]
    assert texts(page, ANSWERS) == ["First"]


def test_text_files_are_put_into_the_prompt_and_others_are_refused(page):
    page.value("attach([new File(['a ``` b'], 'notes.txt'), new File([new Uint8Array([255, 0])], 'picture.png')])")
    page.until("document.querySelectorAll('.chip').length === 1")
    assert texts(page, "#toast") == ["picture.png is not a text file. This model takes text files only."]
    ask(page, "What is in it?")
    [request] = sent(page)
    assert roles_and_texts(request) == [("user", "notes.txt:\n````\na ``` b\n````\n\nWhat is in it?")]
    assert page.value("document.querySelectorAll('.chip').length") == 0


def test_a_model_that_is_being_loaded_is_shown_to_be(page):
    answer_with(page, {"pieces": [], "held": True})
    page.value("""(() => {
      const plain = window.fetch;
      window.fetch = async (where, asked) => {
        const reply = await plain(where, asked);
        if (where !== "/v1/models") return reply;
        const body = await reply.json();
        body.data[0].is_loaded = false;
        return new Response(JSON.stringify(body));
      };
    })()""")
    page.value("listModels()")
    assert "not loaded" in texts(page, "#model option")[0]
    ask(page, "Hi", waits=False)
    page.until("document.querySelector('.progress')?.textContent.startsWith('pocket is loading')")
    page.press("Escape")
    page.until("answering.size === 0")


def test_probabilities_of_tokens_are_shown_with_what_might_have_been(page):
    top = [{"token": "5", "logprob": -0.1}, {"token": "6", "logprob": -2.4}]
    piece = text("5")
    piece["choices"][0]["logprobs"] = {"content": [{"token": "5", "logprob": -0.1, "top_logprobs": top}]}
    answer_with(page, {"pieces": [piece, end()]})
    page.value("$('top_logprobs').value = '3'; 0")
    ask(page, "What is 2 + 3?")
    assert sent(page)[0]["top_logprobs"] == 3
    page.click(".tokens summary")
    page.click(".token")
    assert "5 90 %" in texts(page, ".tokens .note")[0] and "6 9.1 %" in texts(page, ".tokens .note")[0]


def test_keys_and_the_model_are_told_and_what_was_said_goes(chromium, server):
    page = opened(chromium, server.address)
    page.value("toast('Something was done.')")
    page.click("#toast [aria-label=Dismiss]")
    assert texts(page, "#toast") == [""]
    page.value("toast('Something else was done.'); document.activeElement.blur()")
    page.value("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '?', bubbles: true }))")
    assert page.value("$('keys-dialog').open") and "Shift + Enter" in texts(page, "#keys")[0]
    page.press("Escape")
    assert page.value("$('keys-dialog').open") is False and texts(page, "#toast") != [""]
    page.press("Escape")
    assert texts(page, "#toast") == [""]
    page.click("#open-model")
    page.until("$('model-details').textContent.includes('2,048 tokens')")
    assert "temperature" in texts(page, "#model-details")[0]
    # The test's server has one model, and says that it stays.
    page.value("$('unload-model').click()")
    page.until("$('model-told').textContent.includes('one model')")
    assert_nothing_from_elsewhere(page, server.address, expects_refusals=True)
    page.close()


def test_arrows_move_between_tabs_and_escape_closes_what_is_open(chromium, server):
    page = opened(chromium, server.address, width=375, height=700)
    page.value("$('tab-talk').focus()")
    for key, wanted in {"ArrowRight": "notebook", "End": "live", "Home": "talk", "ArrowLeft": "live"}.items():
        page.press(key)
        assert page.value("document.activeElement.id") == f"tab-{wanted}"
        assert page.value(f"!$('view-{wanted}').hidden")
        assert page.value("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length") == 1
    page.click("#tab-talk")
    page.click("#open-settings")
    page.value("view('live')")
    assert page.value("$('settings').hidden && $('shade').hidden") is True
    page.click("#tab-talk")
    for name in ("sidebar", "settings"):
        page.click(f"#open-{name}")
        page.until(f"!$('{name}').hidden")
        page.press("Escape")
        assert page.value(f"$('{name}').hidden") is True
    page.close()
