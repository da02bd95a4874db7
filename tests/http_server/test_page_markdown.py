"""What a model writes, as the page shows it: markdown becomes elements, and nothing of it markup or a script."""

import json
import random

import pytest

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
