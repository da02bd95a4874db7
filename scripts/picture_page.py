"""Takes the pictures of the page that the documentation shows: a real model answers, a real Chromium looks.

    python scripts/picture_page.py [FOLDER] [--only NAME …]

Writes docs/images/page-*.png anew, or into FOLDER. Look at them before they are kept. What pocket says is its own; the
answer in markdown is a sample that this script writes, for pocket writes none. pocket-sight is asked what it can tell.
"""

import argparse
import base64
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from builders.page import Page, ask, browser  # noqa: E402
from builders.served import running_model, served  # noqa: E402

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}}  # fmt: skip
MARKDOWN = """A **penstock** carries water from the reservoir down to the turbine. What it yields follows from its head:

| head | flow | power |
|-----:|-----:|------:|
| 50 m | 2 m³/s | 0.9 MW |
| 120 m | 2 m³/s | 2.1 MW |

1. Measure the head and the flow.
   - the head in metres, between both water levels
   - the flow in cubic metres a second
2. Then compute $P = \\eta \\rho g h Q$:

```python
def power(head: float, flow: float, efficiency: float = 0.9) -> float:
    return 1000 * 9.81 * head * flow * efficiency  # watts
```

> Friction costs a few per cent, which `efficiency` holds as well.
"""
TRAFFIC = """window.hasEnded = false; (async () => {
  const ask = (prompt, max_tokens) => fetch("/v1/completions", {method: "POST",
    headers: {"Content-Type": "application/json"}, body: JSON.stringify({prompt, max_tokens, ignore_eos: true,
    stream: true})}).then((reply) => reply.text());
  for (let round = 0; round < ROUNDS; round++) {
    const asked = [];
    for (let each = 0; each < 2 + 10 * Math.abs(Math.sin(round / 3)); each++)
      asked.push(ask("The river runs through the town, past the mill. ".repeat(4) + round, 60 + 40 * each));
    await Promise.all(asked);
  }
  for (let each = 0; each < 4; each++) ask("The river runs " + each, 30000);
})().then(() => { window.hasEnded = true; }); 0"""


def talk(page: Page) -> None:
    page.value("$('temperature').value = '0'")
    ask(page, "What is 487 + 256?")
    page.click(".message .thought summary")
    page.value(f"$('tools').value = {json.dumps(json.dumps([WEATHER]))}; 0")
    ask(page, "What's the weather in Paris?")
    page.value("$('text').blur()")


def look(page: Page) -> None:
    page.value("$('temperature').value = '0'")
    content = base64.b64encode((ROOT / "docs" / "images" / "shapes.png").read_bytes()).decode()
    array = f"Uint8Array.from(atob('{content}'), (each) => each.charCodeAt(0))"
    for _ in range(2):  # with the first picture its encoder gets ready
        page.value("$('new').click()")
        page.value(f"attach([new File([{array}], 'shapes.png', {{type: 'image/png'}})])")
        for question in ("How many circles are there?", "What color is the triangle?"):
            ask(page, question)
    page.value("$('messages').scrollTop = 0")
    page.value("$('text').blur()")


def explain(page: Page) -> None:
    """A conversation that nobody had, to show how one looks."""
    answer = {"role": "assistant", "content": MARKDOWN, "ending": "stop"}
    question = {"role": "user", "content": "What does a penstock yield?"}
    messages = json.dumps([question, answer])
    page.value(f"for (const each of {messages}) add(current, each); show(current); $('text').blur()")


def watch(page: Page, rounds: int) -> None:
    page.click("#tab-live")
    page.value(TRAFFIC.replace("ROUNDS", str(rounds)))
    page.until("window.hasEnded", seconds=580)
    page.until("document.querySelectorAll('#requests [data-state=generating]').length === 4")
    page.ask("Input.dispatchMouseEvent", type="mouseMoved", x=300, y=150)


def take(model_name: str, pictures: dict[str, tuple[dict[str, Any], Callable[[Page], None]]], folder: Path) -> None:
    with (
        running_model(model_name, max_num_seqs=16) as model,
        served(*model, name=model_name) as server,
        browser() as chromium,
    ):
        for name, (seen, work) in pictures.items():
            page = chromium.open(server.address + "/", **seen)
            page.until("card()?.is_loaded")
            work(page)
            page.picture(folder / f"page-{name}.png")
            page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--rounds", type=int, default=40, help="of requests that the plots show")
    parser.add_argument("--only", nargs="+", help="names of the pictures that are taken")
    arguments = parser.parse_args()
    desk, tablet, phone = (dict(width=w, height=h) for w, h in ((1440, 900), (768, 1000), (375, 720)))
    pictures = {
        "talk-light": (desk, talk),
        "markdown-dark": ({**tablet, "is_dark": True}, explain),
        "talk-phone": (phone, talk),
        "live-dark": ({**desk, "is_dark": True}, lambda page: watch(page, arguments.rounds)),
    }
    for model, wanted in {"pocket": pictures, "pocket-sight": {"picture-light": (tablet, look)}}.items():
        wanted = {name: each for name, each in wanted.items() if name in (arguments.only or wanted)}
        if wanted:
            take(model, wanted, arguments.folder)


if __name__ == "__main__":
    main()
