"""Takes the pictures of the page that the documentation shows: a real model answers, a real Chromium looks.

    python scripts/picture_page.py [FOLDER]

Writes docs/images/page-*.png anew, or into FOLDER. Look at them before they are kept.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "scripts")]

from builders.browser import Page, browser  # noqa: E402
from builders.served import Served, running_model, served  # noqa: E402

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}}  # fmt: skip
TRAFFIC = """window.hasEnded = false; (async () => {
  const ask = (prompt, max_tokens) => fetch("/v1/completions", {method: "POST",
    headers: {"Content-Type": "application/json"}, body: JSON.stringify({prompt, max_tokens, ignore_eos: true,
    stream: true})}).then((reply) => reply.text());
  for (let round = 0; round < ROUNDS; round++) {
    const asked = [];
    for (let each = 0; each < 2 + 10 * Math.abs(Math.sin(round / 3)); each++)
      asked.push(ask("The river runs through the town, past the mill. ".repeat(4) + round, 60 + 20 * each));
    await Promise.all(asked);
  }
})().then(() => { window.hasEnded = true; }); 0"""


def ask(page: Page, question: str) -> None:
    answers = page.value("document.querySelectorAll('.message.assistant small').length")
    page.type("#text", question)
    page.press_enter()
    page.until(f"document.querySelectorAll('.message.assistant small').length > {answers}")


def opened(chromium, server: Served, **seen: object) -> Page:
    page = chromium.open(server.address + "/", **seen)
    page.until("document.querySelector('#model').value === 'pocket'")
    page.value("document.querySelector('#temperature').value = '0'")
    return page


def talk(page: Page) -> None:
    ask(page, "What is 487 + 256?")
    page.click(".message summary")
    page.value(f"document.querySelector('#tools').value = {json.dumps(json.dumps([WEATHER]))}")
    ask(page, "What's the weather in Paris?")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--rounds", type=int, default=40, help="of requests that the plots show")
    arguments = parser.parse_args()
    with running_model("pocket", max_num_seqs=16) as model, served(*model) as server, browser() as chromium:
        for name, seen in {"talk-dark": {"is_dark": True}, "talk-light": {}}.items():
            page = opened(chromium, server, **seen)
            talk(page)
            page.picture(arguments.folder / f"page-{name}.png")
        # The last one opened is in front; those behind it measure nothing.
        page.click("#tab-live")
        page.value(TRAFFIC.replace("ROUNDS", str(arguments.rounds)))
        page.until("window.hasEnded", seconds=300)
        page.picture(arguments.folder / "page-live.png")
        phone = opened(chromium, server, width=390, height=800)
        ask(phone, "What is 2 + 3?")
        phone.picture(arguments.folder / "page-talk-phone.png")


if __name__ == "__main__":
    main()
