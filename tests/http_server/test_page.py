"""The page in a real Chromium before a real model: a person asks, stops, writes on, and looks at the engine; and what a
model writes is shown as elements, nothing of it as markup or a script.

Of all tests with a browser only the first one here and those of the markdown are quick ones.
"""

import json
import random

import pytest
from builders.page import Page, answer_with, ask, assert_nothing_from_elsewhere, opened, texts, whole
from builders.served import served
from builders.watching import wait_until

SIZES = {"phone": (375, 700), "tablet": (768, 1000), "desk": (1440, 900)}
ENDLESS = json.dumps({"prompt": "What is", "max_tokens": 1900, "ignore_eos": True, "stream": True})
# What the page asks for goes on to the end of the context.
NEVER_ENDING = "$('further').value = JSON.stringify({ ignore_eos: true })"
BOX = "(({left, right, top, bottom}) => ({left, right, top, bottom}))(%s.getBoundingClientRect())"


def keep_busy(page: Page) -> None:
    """Two requests run at any time, until the page is closed: each that ends is followed by another."""
    asked = json.dumps({"method": "POST", "headers": {"Content-Type": "application/json"}, "body": ENDLESS})
    once = f"fetch('/v1/completions', {asked}).then((reply) => reply.text(), () => 0)"
    page.value(f"[1, 2].forEach(async () => {{ for (;;) await {once}; }})")


def test_a_question_is_answered_and_what_it_took_is_told(page):
    ask(page, "What is 2 + 3?")
    assert texts(page, ".message.user .body") == ["What is 2 + 3?"]
    assert page.value("document.querySelector('.message.assistant .body').textContent.trim()")
    [summary] = texts(page, ".message.assistant small")
    assert "tokens in" in summary and "first token after" in summary
    assert " of 2,048 tokens" in texts(page, "#context")[0]


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
    wait_until(lambda: server.stats().running == 0, 60, "the engine has ended it")


@pytest.mark.long
def test_an_answer_that_was_cut_goes_on_where_it_ended(page):
    page.value(f"$('max_tokens').value = '3'; {NEVER_ENDING}; 0")
    ask(page, "What is 487 + 256?")
    assert "at the most tokens" in texts(page, ".message.assistant small")[0]
    page.value("current.messages.at(-1).content ||= 'It is'; showConversation()")
    before = page.value("current.messages.at(-1).content")
    page.value("$('max_tokens').value = '6'; document.querySelector('[aria-label^=\"Go on\"]').click()")
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
    assert len(texts(page, ".plot .name")) == 6
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
    page.until("document.querySelectorAll('.plot .cursor').length === 6")
    assert texts(page, ".plot time")[0].count(":") == 2
    page.value("document.querySelector('.plot').focus()")
    page.press("ArrowLeft")
    assert page.value("document.querySelectorAll('.plot .cursor').length") == 6


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
    wait_until(lambda: server.stats().running == 0, 60, "what a closed page has asked has ended")


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


# --- markdown ---------------------------------------------------------------------------------------------------------


CODE = '<figure class="code"><figcaption>{}<button type="button" class="copy" data-word="Copy"><svg/>Copy</button>'
CODE += '</figcaption><pre tabindex="0"><code>{}</code></pre></figure>'
TABLE = '<div class="scrolled" tabindex="0"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
LINK = '<a href="{}" target="_blank" rel="noopener noreferrer">{}</a>'

CASES = {
    "plain": "<p>plain</p>",
    "two\nlines": "<p>two<br>lines</p>",
    "two\n\nparagraphs": "<p>two</p><p>paragraphs</p>",
    "**a** *b* __c__ _d_ ***e***": "<p><strong>a</strong> <em>b</em> <strong>c</strong> <em>d</em> "
    "<em><strong>e</strong></em></p>",
    "*a **b** c* ~~gone~~": "<p><em>a <strong>b</strong> c</em> <del>gone</del></p>",
    "snake_case_name 2 * 3 * 4 a*b": "<p>snake_case_name 2 * 3 * 4 a*b</p>",
    "`code *x*` ``a ` b``": "<p><code>code *x*</code> <code>a ` b</code></p>",
    r"\*no\* \_no\_": "<p>*no* _no_</p>",
    "**unfinished and `unfinished": "<p>**unfinished and `unfinished</p>",
    "# One\n## Two ##\n###### Six": '<h3 class="level1">One</h3><h4 class="level2">Two</h4><h6 class="level6">Six</h6>',
    "#hashtag": "<p>#hashtag</p>",
    "- a\n- b\n  - c\n    - d\n- e": "<ul><li>a</li><li>b<ul><li>c<ul><li>d</li></ul></li></ul></li><li>e</li></ul>",
    "1. a\n   - b\n2. c": "<ol><li>a<ul><li>b</li></ul></li><li>c</li></ol>",
    "1. a\n\n2. b\n\ntext": "<ol><li>a</li><li>b</li></ol><p>text</p>",
    "3) three": '<ol start="3"><li>three</li></ol>',
    "Words:\n- a\n- b": "<p>Words:</p><ul><li>a</li><li>b</li></ul>",
    "In 1999.\n2024. no list": "<p>In 1999.<br>2024. no list</p>",
    "- a\n\n  ```\n  x\n  ```": f"<ul><li>a{CODE.format('text', 'x')}</li></ul>",
    "> a\n> - b\n>> c": "<blockquote><p>a</p><ul><li>b</li></ul><blockquote><p>c</p></blockquote></blockquote>",
    "***\n- - -\n___": "<hr><hr><hr>",
    "```python\nx = 1\n\ny = '<b>'\n```\nafter": CODE.format("python", "x = 1\n\ny = '&lt;b&gt;'") + "<p>after</p>",
    "~~~\n```\n~~~": CODE.format("text", "```"),
    "```js\nunfinished": CODE.format("js", "unfinished"),
    "|a|b|\n|-|:-:|\n|1|2|": TABLE.format(
        '<th class="left">a</th><th class="center">b</th>', '<tr><td class="left">1</td><td class="center">2</td></tr>'
    ),
    "a | b\n--|--:\nx \\| y": TABLE.format('<th class="left">a</th><th class="right">b</th>',
                                           '<tr><td class="left">x | y</td><td class="right"></td></tr>'),
    "[a](https://x.org/b_(c)) <me@x.org>": f"<p>{LINK.format('https://x.org/b_(c)', 'a')} "
    f"{LINK.format('mailto:me@x.org', 'me@x.org')}</p>",
    "See https://x.org/a_b_c.": f"<p>See {LINK.format('https://x.org/a_b_c', 'https://x.org/a_b_c')}.</p>",
    "![seen](https://x.org/p.png)": f"<p>{LINK.format('https://x.org/p.png', 'seen')}</p>",
    "[a](javascript:alert(1)) [b](data:text/html,x)": "<p><span>a</span> <span>b</span></p>",
    "<script>x</script><br>&lt;b&gt;&amp;": "<p>&lt;script&gt;x&lt;/script&gt;<br>&lt;b&gt;&amp;</p>",
    "$a_1*b*c_2$ costs $5 and $6": '<p><span class="formula">$a_1*b*c_2$</span> costs $5 and $6</p>',
    "\\(a_1\\) \\[x*y*z\\]": '<p><span class="formula">\\(a_1\\)</span> <span class="formula">\\[x*y*z\\]</span></p>',
    "$$\nx_1\n$$": '<p class="formula">$$\nx_1\n$$</p>',
    "Title\n=====\ntext": "<h3>Title</h3><p>text</p>",
}  # fmt: skip

# Elements and attributes that the page makes of markdown; nothing else may come of any text.
PLAIN = [
    "br", "strong", "em", "del", "code", "hr", "blockquote", "ul", "figcaption", "table", "thead", "tbody", "tr"
]  # fmt: skip
KNOWN = {
    **{name: [] for name in PLAIN},
    **{name: ["class"] for name in ["p", "li", "h3", "h4", "h5", "h6", "span", "figure", "th", "td"]},
    "a": ["href", "target", "rel"], "pre": ["tabindex"], "ol": ["start"], "div": ["class", "tabindex"],
    "button": ["type", "class", "data-word"], "input": ["type", "disabled", "aria-label"],
    "svg": ["viewBox", "class", "aria-hidden"], "path": ["d"],
}  # fmt: skip
PIECES = [
    "<img src=x onerror=alert(1)>", "<script>", "</script>", "<a href='javascript:alert(1)'>", "<br>", "<https://x.org>",
    "[x](javascript:alert(1))", "[x](JaVaScRiPt&#58;alert(1))", "[x](https://x.org\" onclick=\"y)", "![x](x)",
    "<javascript:alert(1)>", "](", "[", "]", "(", ")", "`", "``", "```\n", "~~~", "*", "**", "***", "_", "__",
    "~~", "|", "|-|\n", "a|b\n-|-\n", "> ", ">", "\n", "\n\n", "  ", "    ", "\t", "- ", "1. ", "- [x] ", "# ", "---\n",
    "===\n", "$", "$$", "\\[", "\\]", "\\", "&amp;", "&#39;", "https://x.org/", "word", "ä漢🙂", "\u202e",
    "\x00", "\r\n",
]  # fmt: skip
CHECK = """((texts, known) => {
  const faults = [];
  for (const text of texts) {
    const place = make("div");
    showMarkdown(place, text);
    for (const element of place.querySelectorAll("*")) {
      const allowed = known[element.localName];
      const odd = element.getAttributeNames().filter((name) => !allowed?.includes(name));
      const address = element.getAttribute("href");
      const isSafe = !address || /^(https?:|mailto:)/i.test(address);
      if (!allowed || odd.length || !isSafe) faults.push([text, element.outerHTML]);
    }
    const grown = make("div");
    for (let end = 0; end <= text.length + 6; end += 7) showMarkdown(grown, text.slice(0, end));
    if (grown.innerHTML !== place.innerHTML) faults.push([text, "grown otherwise", grown.innerHTML, place.innerHTML]);
  }
  return faults.slice(0, 3);
})"""


def test_markdown_becomes_elements(page):
    shown = page.value(
        f"{json.dumps(list(CASES))}.map((text) => {{ const place = make('div'); showMarkdown(place, text);"
        " return place.innerHTML.replace(/<svg.*?<\\/svg>/g, '<svg/>'); })"
    )
    wrong = {text: (found, wanted) for (text, wanted), found in zip(CASES.items(), shown) if found != wanted}
    assert not wrong, json.dumps(wrong, indent=1)


@pytest.mark.parametrize("number", [60, pytest.param(2000, marks=pytest.mark.long)])
def test_no_text_becomes_markup_and_what_grows_is_shown_as_what_is_whole(page, number):
    chance = random.Random(16)
    texts = ["".join(chance.choices(PIECES, k=chance.randint(1, 25))) for _ in range(number)]
    assert page.value(f"{CHECK}({json.dumps(texts)}, {json.dumps(KNOWN)})") == []


@pytest.mark.long
def test_a_long_row_of_anything_is_shown(page):
    """Within the bound of the browser's builder: nothing takes time by the square of the length."""
    rows = ["[", "![", "*a ", "_a *", "`", "``` ", "> ", "- ", "|", "\\[\n", "$$\n", "<", "(", "**a", "[a](", "- a\n\n"]
    page.value("window.long = make('div'); 0")
    for row in rows:
        shown = page.value(f"showMarkdown(long, {json.dumps(row)}.repeat(1000)); long.childNodes.length")
        assert shown >= 1, row
