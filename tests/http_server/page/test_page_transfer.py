"""Conversations as files, in a real Chromium: exported, imported; and whatever else a file or the storage holds."""

import json
from typing import Any

import pytest
from builders.page import Page, answer_with, ask, sent, texts, whole

pytestmark = pytest.mark.long

# For each field in turn, in JSON; 1e999 is more than a number holds.
ODD = json.dumps([None, -1, "__proto__", [None, 1, "a", {}], {"length": 3, "text": {}}])[:-1] + ", 1e999]"
# What is stored may be what no JSON says.
ODD_STORED = f"[...JSON.parse({json.dumps(ODD)}), 10n, new Date(NaN), [,]]"

PICTURE = "data:image/gif;base64,R0lGODlhAQABAAAAACw="
TOKEN = {"token": "It", "logprob": -0.5, "top": [{"token": "It", "logprob": -0.5}]}
WHOLE = {
    "id": "own", "title": "Rivers", "isNamed": False, "created": 1, "updated": 2, "leaf": "4", "system": "Be kind.",
    "messages": [
        {"id": "1", "parent": None, "role": "user", "content": "What?", "created": 1,
         "files": [{"name": "a", "text": "b"}], "pictures": [{"name": "c", "url": PICTURE}]},
        {"id": "2", "parent": "1", "role": "assistant", "content": "Wait", "created": 1, "model": "pocket",
         "thought": "Hm", "thoughtSeconds": 1, "firstToken": 1, "answerSeconds": 2, "ending": "tool_calls",
         "isOpen": True, "error": "No.", "isRunning": False, "status": 500, "phase": "x",
         "usage": {"prompt_tokens": 1, "completion_tokens": 9},
         "calls": [{"id": "c", "name": "look", "text": "{}"}], "tokens": [TOKEN]},
        {"id": "3", "parent": "2", "role": "tool", "content": "21", "created": 1, "call": "c", "name": "look"},
        {"id": "4", "parent": "3", "role": "assistant", "content": "Last", "ending": "length"},
    ],
}  # fmt: skip

HELPERS = r"""
window.isSaid = (part) => typeof part === "string" || typeof (part.text ?? part.image_url.url) === "string";
// All that the page does with a conversation: searched, shown, exported, told to a model.
window.useAll = () => {
  for (current of conversations.values()) {
    matches(current, "x");
    showConversation();
    const shown = $("messages").textContent + $("title").textContent + asMarkdown(current) + fileName(current, "md");
    if (/undefined|NaN|\[object|native code/.test(shown)) throw new Error(shown);
    for (const { role, content } of [...JSON.parse(asJson([current])).conversations[0].openai, ...historyOf(current)])
      if (typeof role !== "string" || !(Array.isArray(content) ? content : [content]).every(isSaid))
        throw new Error(JSON.stringify(current));
  }
  showSidebar();
  return conversations.size;
};
// A value with an odd one in one place of it, for each place and each odd one.
window.variants = function* (value, odd) {
  yield* odd;
  for (const name of Object.keys(typeof value === "object" && value || {}))
    for (const inner of variants(value[name], odd))
      yield Array.isArray(value) ? value.with(name, inner) : { ...value, [name]: inner };
};
"""


@pytest.fixture
def page(page) -> Page:
    answer_with(page, whole("First"), whole("Second"), whole("Third"))
    page.value(f"{HELPERS}; window.saved = []; save = (name, kind, text) => saved.push([name, text]); 0")
    return page


def bring_in(page: Page, content: Any) -> str:
    """A file with this text, or this value in JSON; what is said."""
    text = content if isinstance(content, str) else json.dumps(content)
    page.value(f"$('toast').replaceChildren(); bringIn([new File([{json.dumps(text)}], 'some.json')])")
    return "".join(texts(page, "#toast"))


def newest(page: Page) -> dict:
    return page.value("[...conversations.values()].at(-1)")


def reloaded(page: Page) -> None:
    number = page.value("conversations.size")
    page.reload()
    page.until(f"conversations.size === {number} && $('model').value === 'pocket'")
    answer_with(page, whole("First"))
    page.value(f"{HELPERS}; 0")


def test_conversations_are_exported_and_imported_again(page):
    ask(page, "What, then?")
    ask(page, "And now?")
    page.click("#export-markdown")
    page.click("#export-json")
    (name, markdown), (_, exported) = page.value("saved")
    assert name == "What-then.md"
    assert markdown.startswith("# What, then?\n\n## Question\n\nWhat, then?\n\n## Answer (pocket)\n\nFirst\n")
    own = json.loads(exported)["conversations"][0]["openai"]
    assert [message["content"] for message in own] == ["What, then?", "First", "And now?", "Second"]
    assert bring_in(page, exported) == "1 conversation imported."
    assert page.value("current.id") == newest(page)["id"]  # and opened
    before, after = (page.value(f"[...conversations.values()].at({place})") for place in (0, 1))
    assert after == {**before, "id": after["id"]}


WRONG = {
    "no JSON": "{", "nothing": "null", "a number": "7", "a text": '"penstock"', "an object": "{}",
    "an empty list": "[]", "no messages": '{"penstock": 1}',
    "no role": {"penstock": 1, "conversations": [{"messages": [{"role": "x", "content": "a"}]}]},
    "a list for a role": {"penstock": 1, "conversations": [{"messages": [{"role": ["user"], "content": "a"}]}]},
    "a ring": {"penstock": 1, "conversations": [{"leaf": "2", "messages": [
        {"role": "user", "content": "a", "id": "1", "parent": "2"}, {"role": "assistant", "id": "2", "parent": "1"}]}]},
    "no list of conversations": {"penstock": 1, "conversations": "many"},
    "no conversations": {"penstock": 1, "conversations": [None, 7, [], "x", {"messages": 7}]},
    "system alone": [{"role": "system", "content": "Be kind."}],
    "empty questions": [{"role": "user", "content": [{"type": "image_url"}]}],
    "too many messages": [{"role": "user", "content": "x"}] * 10_001,
}  # fmt: skip


def test_what_holds_no_conversation_is_refused_in_a_sentence(page):
    for name, wrong in WRONG.items():
        said = bring_in(page, wrong)
        assert said.startswith("some.json ") and said.endswith(".") and "mistake" not in said, (name, said)
    assert page.value("conversations.size") == 0


def test_what_can_not_be_taken_of_a_file_is_left_out_and_said(page):
    question, answer, *others = WHOLE["messages"]
    spoiled = {**WHOLE, "messages": [question, None, {**answer, "role": 5}, *others]}
    assert bring_in(page, {"penstock": 1, "conversations": [None, spoiled]}) == (
        "1 conversation imported. Left out: 1 conversation and 2 messages that this page can't show or keep."
    )
    page.value("useAll()")
    contents = "way([...conversations.values()][0]).map((message) => message.content)"
    assert page.value(contents) == ["What?", "21", "Last"]
    several = "bringIn([new File(['{'], 'a.json'), new File(['[{\"role\": \"user\", \"content\": 5}]'], 'b.json')])"
    page.value(several)
    assert texts(page, "#toast") == ["1 conversation imported. a.json is not JSON, as exported conversations are."]
    assert newest(page)["messages"][0]["content"] == "5"


def test_values_of_any_kind_in_any_field_break_no_import_and_no_reload(page):
    page.value(f"""(async () => {{
      const all = [...variants({json.dumps(WHOLE)}, JSON.parse({json.dumps(ODD)}))];
      await bringIn([new File([JSON.stringify({{ penstock: 1, conversations: all }})], "own.json")]);
    }})()""")
    number = page.value("useAll()")
    assert number > 200 and texts(page, "#toast")[0].startswith(f"{number} conversations imported. Left out: ")
    kept = "JSON.stringify([...conversations.values()].sort((one, other) => one.id < other.id ? -1 : 1))"
    before = page.value(kept)
    reloaded(page)
    assert page.value(kept) == before


def test_values_of_any_kind_in_openai_messages_break_no_import(page):
    messages = [
        {"role": "system", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "What?"}]},
        {"role": "assistant", "content": "Wait", "reasoning_content": "Hm",
         "tool_calls": [{"id": "c", "function": {"name": "look", "arguments": "{}"}}]},
        {"role": "tool", "content": "21", "tool_call_id": "c", "name": "look"},
    ]  # fmt: skip
    page.value(f"""bringIn([...variants({json.dumps(messages)}, JSON.parse({json.dumps(ODD)}))]
      .map((each) => new File([JSON.stringify(each)], "theirs.json")))""")
    assert page.value("useAll()") > 100


def test_what_is_stored_broken_breaks_no_load(page):
    stored = page.value(f"""(async () => {{
      const all = [...variants({json.dumps(WHOLE)}, {ODD_STORED})]
        .filter((each) => isObject(each) && isObject(each.messages?.[0]));
      const transaction = database.transaction("conversations", "readwrite");
      all.forEach((each, number) => transaction.objectStore("conversations").put({{ ...each, id: `own ${{number}}` }}));
      await new Promise((resolve) => {{ transaction.oncomplete = resolve; }});
      for (const name of ["penstock.settings", "penstock.notebook"])
        localStorage.setItem(name, '{{"system": {{"a": 1}}, "theme": [], "top_k": {{}}}}');
      return all.length;
    }})()""")
    page.reload()
    page.until("conversations.size && $('model').value === 'pocket'")
    page.value(f"{HELPERS}; 0")
    assert page.value("useAll()") == stored > 300
    assert page.value("[$('system').value, $('theme').value, $('top_k').value, $('page-text').value]") == [""] * 4
    answer_with(page, whole("First"))
    ask(page, "And now?")
    assert texts(page, ".message.assistant .body")[-1] == "First"


def test_a_system_prompt_is_exported_and_taken_back_with_its_conversation(page):
    page.value("$('system').value = 'Be kind.'; keepSettings()")
    ask(page, "One")
    page.value("$('export-markdown').click(); $('export-json').click(); 0")
    (_, markdown), (_, exported) = page.value("saved")
    assert markdown.startswith("# One\n\n## System prompt\n\nBe kind.\n\n## Question")
    messages = json.loads(exported)["conversations"][0]["openai"]
    assert [message["content"] for message in messages] == ["Be kind.", "One", "First"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant"]
    bring_in(page, exported)
    assert "system" not in newest(page)  # it is what the settings say
    page.value("$('system').value = 'Be rude.'; keepSettings()")
    for content, wanted in {
        exported: "Be kind.",
        json.dumps(messages): "Be kind.",
        json.dumps([*messages, {"role": "developer", "content": [{"text": "Be brief."}]}]): "Be kind.\n\nBe brief.",
    }.items():
        assert bring_in(page, content) == "1 conversation imported."
        page.value(f"sessionStorage.setItem('penstock.conversation', {json.dumps(newest(page)['id'])})")
        reloaded(page)
        assert texts(page, ".message.system pre") == [wanted]
        ask(page, "Two")
        assert sent(page)[-1]["messages"][0] == {"role": "system", "content": wanted}
    page.value("document.querySelector('.message.system button').click()")
    ask(page, "Three")
    assert sent(page)[-1]["messages"][0] == {"role": "system", "content": "Be rude."}


def test_openai_messages_are_taken_with_thoughts_and_calls(page):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    bring_in(page, {"messages": [
        {"role": "user", "content": [{"type": "text", "text": "In"}, {"type": "text", "text": "parts"}]},
        {"role": "assistant", "content": None, "reasoning_content": "Hm", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "21"},
        {"role": "assistant", "content": "It is 21."},
    ]})  # fmt: skip
    page.value("show([...conversations.values()][0]); 0")
    assert texts(page, ".message .body") == ["In\nparts", "", "It is 21."]
    assert texts(page, ".call") == ["look({})"]
    assert texts(page, ".thought > div") == ["Hm"]
    assert texts(page, ".result summary") == ["Result of look"]
    assert page.value("historyOf(current)[1].tool_calls") == [call]
