"""What a model writes, in a real Chromium: shown as elements, nothing of it as markup or a script,
however it is cut into pieces, and in a time linear in its length.
"""

import json
import random

import pytest
from builders.page import Page

CODE = '<figure class="code"><figcaption>{}<button type="button" class="copy" data-word="Copy"><svg/>Copy</button>'
CODE += '</figcaption><pre tabindex="0"><code>{}</code></pre></figure>'
LINE = "<span>{}</span>"
TABLE = '<div class="scrolled" tabindex="0"><table><thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>'
LINK = '<a href="{}" target="_blank" rel="noopener noreferrer">{}</a>'

MATH = '<math display="{}" alttext="{}">{}</math>'
SUB = "<msub><mi>a</mi><mn>1</mn></msub>"

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
    "- a\n\n  ```\n  x\n  ```": f"<ul><li>a{CODE.format('text', LINE.format('x'))}</li></ul>",
    "> a\n> - b\n>> c": "<blockquote><p>a</p><ul><li>b</li></ul><blockquote><p>c</p></blockquote></blockquote>",
    "***\n- - -\n___": "<hr><hr><hr>",
    "```python\nx = 1\n\ny = '<b>'\n```\nafter": CODE.format(
        "python",
        '<span>x = <span class="code-number">1</span></span><span>\n</span>'
        '<span>\ny = <span class="code-string">\'&lt;b&gt;\'</span></span>',
    ) + "<p>after</p>",
    "~~~\n```\n~~~": CODE.format("text", LINE.format("```")),
    "```js\nunfinished": CODE.format("js", LINE.format("unfinished")),
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
    "$a_1$ costs $5 and $6": f"<p>{MATH.format('inline', 'a_1', SUB)} costs $5 and $6</p>",
    "\\(a_1\\) \\(\\what{x}\\)": f"<p>{MATH.format('inline', 'a_1', SUB)} "
    '<span class="formula">\\(\\what{x}\\)</span></p>',
    "$$\na_1\n$$": f'<p class="formula">{MATH.format("block", "a_1", SUB)}</p>',
    "$$\nnever closed": "<p>$$<br>never closed</p>",
    "a[^1] b[^2]\n\n[^1]: The *note*": '<p>a<span><sup><button type="button" class="note-mark" aria-label="Footnote 1">'
    '1</button></sup></span> b<span>[^2]</span></p>'
    '<div class="note-text" tabindex="-1"><sup>1</sup> The <em>note</em></div>',
    "a[^1](https://x.org)": f"<p>a{LINK.format('https://x.org', '^1')}</p>",
    "[https://x.org/a](https://x.org/a)": f"<p>{LINK.format('https://x.org/a', 'https://x.org/a')}</p>",
    "|a|b|c|\n|-|-|-|\n|1|": TABLE.format(
        "".join(f'<th class="left">{each}</th>' for each in "abc"),
        '<tr><td class="left">1</td><td class="left" colspan="2"></td></tr>',
    ),
    "> a\nb\n\n> c": "<blockquote><p>a<br>b</p></blockquote><blockquote><p>c</p></blockquote>",
    "- [x] a\n- [ ] b": '<ul><li class="task"><input type="checkbox" disabled="" aria-label="Done"> a</li>'
    '<li class="task"><input type="checkbox" disabled="" aria-label="Done"> b</li></ul>',
    "Title\n=====\ntext": "<h3>Title</h3><p>text</p>",
}  # fmt: skip

# Elements and attributes that the page makes of markdown; nothing else may come of any text.
PLAIN = [
    "br", "strong", "em", "del", "code", "hr", "blockquote", "ul", "figcaption", "table", "thead", "tbody", "tr"
]  # fmt: skip
KNOWN = {
    **{name: [] for name in PLAIN},
    **{name: ["class"] for name in ["p", "li", "h3", "h4", "h5", "h6", "span", "figure"]},
    **{name: ["class", "colspan"] for name in ["th", "td"]},
    "a": ["href", "target", "rel"], "pre": ["tabindex"], "ol": ["start"], "div": ["class", "tabindex"],
    "button": ["type", "class", "data-word", "aria-label"], "input": ["type", "disabled", "aria-label"],
    "svg": ["viewBox", "class", "aria-hidden"], "path": ["d"], "math": ["display", "alttext"],
    **{name: [] for name in ("mrow", "mi", "mn", "mfrac", "msub", "msup", "msubsup", "mtr", "sup")},
    "mo": ["stretchy"], "mtd": ["class"], "mtable": ["displaystyle"], "mspace": ["width"],
}  # fmt: skip
PIECES = [
    "<img src=x onerror=alert(1)>", "<script>", "</script>", "<a href='javascript:alert(1)'>", "<br>", "<https://x.org>",
    "[x](javascript:alert(1))", "[x](JaVaScRiPt&#58;alert(1))", "[x](https://x.org\" onclick=\"y)", "![x](x)",
    "<javascript:alert(1)>", "](", "[", "]", "(", ")", "`", "``", "```\n", "~~~", "*", "**", "***", "_", "__",
    "~~", "|", "|-|\n", "a|b\n-|-\n", "> ", ">", "\n", "\n\n", "  ", "    ", "\t", "- ", "1. ", "- [x] ", "# ", "---\n",
    "===\n", "$", "$$", "\\[", "\\]", "\\", "&amp;", "&#39;", "https://x.org/", "word", "ä漢🙂", "\u202e",
    "\x00", "\r\n", "[^1]", "[^1]: ", "\\(", "\\)", "\\frac{1}{2}", "```js\n", "x_1^2",
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


FORMULAS = {
    r"\frac{a}{b}": "<mfrac><mrow><mi>a</mi></mrow><mrow><mi>b</mi></mrow></mfrac>",
    r"\sqrt[3]{x}": "<mroot><mrow><mi>x</mi></mrow><mn>3</mn></mroot>",
    r"\sum_{i}^n": "<munderover><mo>∑</mo><mrow><mi>i</mi></mrow><mi>n</mi></munderover>",
    "f''": "<msup><mi>f</mi><mo>′′</mo></msup>",
    r"\left(x\right]": '<mrow><mo stretchy="true">(</mo><mi>x</mi><mo stretchy="true">]</mo></mrow>',
    r"\mathbb{R}^{12}": "<msup><mrow><mi>ℝ</mi></mrow><mrow><mn>12</mn></mrow></msup>",
    r"\text{if } x \le 3": '<mrow><mtext class="words">if&nbsp;</mtext><mi>x</mi>'
    '<mo stretchy="false">≤</mo><mn>3</mn></mrow>',
    r"\begin{cases} 1 & a \\ 2 & b \end{cases}": '<mrow><mo stretchy="true">{</mo><mtable displaystyle="true">'
    '<mtr><mtd class="left"><mn>1</mn></mtd><mtd class="left"><mi>a</mi></mtd></mtr>'
    '<mtr><mtd class="left"><mn>2</mn></mtd><mtd class="left"><mi>b</mi></mtd></mtr></mtable></mrow>',
}  # fmt: skip
# What isn't known, or isn't complete, stays as it is written.
NO_FORMULAS = [
    r"\href{javascript:alert(1)}{x}", r"\frac{1}", "{a", "a}", "a^b^c", r"\left( x", r"\begin{a} \end{a}", "a % b", "^",
    r"\begin{matrix} 1 \end{cases}", r"\constructor", r"\begin{constructor}\end{constructor}", "{" * 40 + "}" * 40,
]  # fmt: skip
# Of each language: code, and what of it has a colour, line by line.
COLOURED = {
    ("python", 'def f():  # "no\n  """a\nb""" + 1.5e3'): [
        ["keyword def", 'comment # "no'], ['string """a'], ['string b"""', "number 1.5e3"]],
    ("ts", "const a = 'it\\'s'; /* x\n*/ null // y"): [
        ["keyword const", "string 'it\\'s'", "comment /* x"], ["comment */", "keyword null", "comment // y"]],
    ("json", '{"a": [true, "b"]}'): [['key "a"', "keyword true", 'string "b"']],
    ("sql", "Select 1 -- x"): [["keyword Select", "number 1", "comment -- x"]],
    ("bash", "if [ $# ]; # c"): [["keyword if", "comment # c"]],
    ("html", "<a href='x'><!-- y\nz -->"): [
        ["keyword <a", "key href", "string 'x'", "keyword >", "comment <!-- y"], ["comment z -->"]],
    ("diff", "+a\n-b\n c"): [["added +a"], ["removed -b"], []],
    ("constructor", "if 1"): [[]],
}  # fmt: skip


def test_formulas_are_mathematics_where_all_of_them_is_known_and_code_has_its_colours(page):
    shown = page.value(
        f"{json.dumps([*FORMULAS, *NO_FORMULAS])}.map((latex) => {{ const node = formulaNode(`$$${{latex}}$$`, true);"
        " return node.localName === 'math' ? node.innerHTML : node.textContent.slice(2, -2); })"
    )
    wanted = [*FORMULAS.values(), *NO_FORMULAS]
    wrong = [(found, asked) for found, asked in zip(shown, wanted, strict=True) if found != asked]
    assert not wrong, json.dumps(wrong, indent=1, ensure_ascii=False)
    shown = page.value(
        f"{json.dumps(list(COLOURED))}.map(([language, text]) => {{ const place = make('div');"
        " showMarkdown(place, '```' + language + '\\n' + text); return [...place.querySelectorAll('code > span')].map("
        " (line) => [...line.children].map((each) => each.className.slice(5) + ' ' + each.textContent)); })"
    )
    assert dict(zip(COLOURED, shown)) == COLOURED


# Rows of what opens and never closes, closes what never opened, or has to be looked for; after what they may stand in.
ROWS = [
    "[", "![", "*a ", "_a *", "*a_b*c_", "`", "`` ` ``` ", "<", "<a@b", "(", "**a", "~~a", "[a](", "[a](b[c](", "]( \"",
    "h", "https://x)", "&", "$", "$a ", "$x^{2}$ ", "\\(", "\\[\n", "$$\n", "# ", " ", "\t", "\r", "> ", "- ", "1. ",
    "- a\n\n", "  - a\n", "|", "a|", "|-", "a|b\n-|-\n", "---\n", "a\n", "~~~\n", "``` ", "[^a]",
    "[^a]: b\n", "/*", "'\\\\", "\\frac{",
]  # fmt: skip
BEFORE = ["", "```js\n", "# ", "- ", "> ", "a" + "|a" * 90 + "\n" + "-|" * 90 + "-\n", "[a](https://x ", "$$", "**"]
SHOW = """((text, piece) => {
  const place = make("div");
  for (let end = piece; end < text.length; end += piece) growMarkdown(place, text.slice(0, end));
  showMarkdown(place, text);
})"""


def work(page: Page, text: str, piece: int) -> int:
    """How often the page's functions, or their innermost loops, have run to show a text that came in such pieces."""
    page.ask("Profiler.takePreciseCoverage")
    page.value(f"{SHOW}({json.dumps(text)}, {piece})")
    scripts = page.ask("Profiler.takePreciseCoverage")["result"]
    functions = [each for script in scripts if script["url"] for each in script["functions"]]
    return sum(max(block["count"] for block in each["ranges"]) for each in functions)


@pytest.mark.parametrize("befores, every", [(BEFORE[:1], 4), pytest.param(BEFORE, 1, marks=pytest.mark.long)])
def test_twice_the_text_is_twice_the_work_whole_and_in_pieces(page, befores, every):
    page.ask("Profiler.enable")
    page.ask("Profiler.startPreciseCoverage", callCount=True, detailed=True)
    wrong = []
    for before in befores:
        for number, row in enumerate(ROWS):
            for length, piece in ((3000, 9000), (1500, 9))[: 1 if number % every else 2]:
                rows = row * (2 * length)
                once, twice = (work(page, before + rows[:size], piece) for size in (length, 2 * length))
                if twice > 2.5 * once + 1000:
                    wrong.append((before, row, piece, once, twice))
    page.ask("Profiler.stopPreciseCoverage")
    assert wrong == []
