"""Shows the main job in a screenful: a batch, a streamed answer with its thinking, a prefix computed once, a picture.

    python scripts/demo.py [--model MODEL]        # pocket, the bundled model, if none is named

Every figure that it prints was taken in that run. Uses what every script may use, and nothing else of Penstock.
"""

import argparse
import os
import random
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from unicodedata import east_asian_width

from penstock import LLM, PenstockError, RequestOutput, SamplingParams

Conversation = list[dict[str, str]]

CAPITALS = {
    "France": "Paris", "Japan": "Tokyo", "Italy": "Rome", "Egypt": "Cairo", "Spain": "Madrid", "Peru": "Lima",
    "Germany": "Berlin", "Greece": "Athens", "Norway": "Oslo", "China": "Beijing", "Poland": "Warsaw", "Cuba": "Havana",
}  # fmt: skip
SHOWN = 4  # of the batch's answers
EARLIER_TURNS = 20  # of the long conversation
THOUGHT_OVER = "What is 348 + 275?"
PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "shapes.png"
ABOUT_PICTURE = ("Which shape is blue?", "Is there a star?", "How many red circles are there?")
FOLLOWING = ("What is the opposite of hot?", "What is 21 + 14?")
BRIEFLY = SamplingParams(temperature=0, max_tokens=48)
AT_LENGTH = SamplingParams(temperature=0, max_tokens=256)
DIRECTLY = {"enable_thinking": False}  # read by chat templates that know a thinking mode


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Show what Penstock does, on one model.")
    parser.add_argument("--model", default="pocket", help="an instruct model: bundled name, folder or hub id (pocket)")
    try:
        show(parser.parse_args(argv).model)
    except KeyboardInterrupt:
        say("\nStopped. The model's processes have ended, too.")
        return 130
    except PenstockError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def show(model: str) -> None:
    title(f"Penstock demo: {model}, on this machine")
    start = time.monotonic()
    with LLM(model) as llm:
        say(f"Ready in {time.monotonic() - start:.1f} s. The line above says what the model takes of this machine.")
        earlier = show_batch(llm)
        show_stream(llm)
        show_prefix(llm, earlier)
    if model == "pocket":
        show_picture()
    say_what_next(model)


def show_batch(llm: LLM) -> Conversation:
    """Many conversations in one call; returns some of them as one, for what comes later."""
    asked = questions()
    title(f"1. A batch: {len(asked)} questions in one call of llm.chat()")
    before, start = llm.stats(), time.monotonic()
    conversations = [[{"role": "user", "content": question}] for question, _ in asked]
    outputs = llm.chat(conversations, BRIEFLY, chat_template_kwargs=DIRECTLY)
    seconds, after = time.monotonic() - start, llm.stats()
    answers = [answer(output) for output in outputs]
    for (question, _), text in zip(asked[:SHOWN], answers):
        say_answer(question, text)
    right = sum(wanted in text for (_, wanted), text in zip(asked, answers))
    tokens, steps = after.generated_tokens - before.generated_tokens, after.steps - before.steps
    say(f"  {right} of {len(asked)} are right. {tokens:,} tokens in {seconds:.2f} s: {tokens / seconds:,.0f} a second.")
    say(f"  They took {steps} steps, because a step computes the next token of every unfinished answer.")
    return [turn for (question, _), text in zip(asked[:EARLIER_TURNS], answers) for turn in turns(question, text)]


def show_stream(llm: LLM) -> None:
    """One answer as it comes, the thought before it dimmed."""
    title(f"2. A stream, thinking first: for delta in llm.stream({THOUGHT_OVER!r})")
    tokens, first, start = 0, 0.0, time.monotonic()
    margin = Margin()
    for delta in llm.stream([{"role": "user", "content": THOUGHT_OVER}], AT_LENGTH):
        check(delta)
        first = first or time.monotonic() - start
        tokens += len(delta.outputs.token_ids)
        margin.write(delta.outputs.reasoning_content or "", is_thought=True)
        margin.write(delta.outputs.text, is_thought=False)
    margin.end()
    rate = (tokens - 1) / max(time.monotonic() - start - first, 1e-9)
    say(f"  {tokens} tokens: the first after {1000 * first:.0f} ms, then {rate:,.0f} a second.")


def show_prefix(llm: LLM, earlier: Conversation) -> None:
    """A long conversation goes on in two ways; the second computes only what is new."""
    title(f"3. A prefix: {len(earlier) // 2} of those turns as one conversation that goes on in two ways")
    for question in FOLLOWING:
        conversation = [*earlier, {"role": "user", "content": question}]
        [output] = llm.chat(conversation, BRIEFLY, use_tqdm=False, chat_template_kwargs=DIRECTLY)
        say_answer(question, answer(output))
        waited = 1000 * (output.metrics.first_token_time or 0.0)
        prompt, cached = len(output.prompt_token_ids), output.num_cached_tokens
        say(f"  {prompt:,} tokens in, {cached:,} of them from the prefix cache; first token after {waited:.0f} ms.")


def show_picture() -> None:
    """The other bundled model, which sees."""
    title(f"4. A picture: {shown(PICTURE)}, seen by pocket-sight")
    with LLM("pocket-sight", quiet=True) as llm:
        picture = {"type": "image", "image": str(PICTURE)}
        contents = [[picture, {"type": "text", "text": question}] for question in ABOUT_PICTURE]
        outputs = llm.chat([[{"role": "user", "content": each}] for each in contents], BRIEFLY, use_tqdm=False)
    for question, output in zip(ABOUT_PICTURE, outputs):
        say_answer(question, answer(output))


def say_what_next(model: str) -> None:
    root = Path(__file__).resolve().parents[1]
    suggestions = {
        f"{shown(Path(sys.executable).with_name('penstock'))} chat {model}": "talk to it",
        f"{shown(root / 'scripts' / 'demo')} --model /path/to/Qwen3-0.6B": "all this on a model of your own",
        shown(root / "docs" / "getting-started.md"): "the lines of Python for it",
    }
    title("What next")
    width = max(map(len, suggestions))
    for suggestion, sentence in suggestions.items():
        say(f"  {suggestion:<{width}}  {sentence}")


# --- questions and answers --------------------------------------------------------------------------------------------


def questions() -> list[tuple[str, str]]:
    """Each with what a right answer holds; the kinds take turns."""
    draws = random.Random(1)
    asked: list[tuple[str, str]] = []
    for country, capital in CAPITALS.items():
        a, b, c, d = draws.sample(range(10, 90), 4)
        asked += [
            (f"What is {a} + {b}?", str(a + b)),
            (f"What is the capital of {country}?", capital),
            (f"Which is larger, {c} or {d}?", str(max(c, d))),
            (f"{b}加{d}等于多少?", str(b + d)),
        ]
    return asked


def turns(question: str, text: str) -> Conversation:
    return [{"role": "user", "content": question}, {"role": "assistant", "content": text}]


def check(output: RequestOutput) -> None:
    if output.error_code != 200:
        raise PenstockError(f"the model could not answer ({output.error_code}): {output.error_msg}")


def answer(output: RequestOutput) -> str:
    """The text, on one line."""
    check(output)
    return " ".join(output.outputs.text.split())


# --- the terminal -----------------------------------------------------------------------------------------------------


def say(text: str) -> None:
    # Flushed: what Penstock itself says goes to stderr and must not overtake it.
    print(text, flush=True)


def title(text: str) -> None:
    say("\n" + (text if is_plain() else f"\033[1m{text}\033[0m"))


def say_answer(question: str, text: str) -> None:
    columns = shutil.get_terminal_size().columns
    say("  " + clipped(f"{padded(question, 34)}{printable(text)}", columns - 2))


def is_plain() -> bool:
    return "NO_COLOR" in os.environ or not sys.stdout.isatty()


def width_of(text: str) -> int:
    """Columns on a terminal: a Chinese character takes two."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def padded(text: str, width: int) -> str:
    return text + " " * max(1, width - width_of(text))


def clipped(text: str, columns: int) -> str:
    if width_of(text) <= columns:
        return text
    while width_of(text) >= columns:
        text = text[:-1]
    return text + "…"


def printable(text: str) -> str:
    """A model may say anything; what would move the cursor is shown as a gap."""
    return "".join(character if character.isprintable() else " " for character in text)


class Margin:
    """Text that arrives in pieces, indented; a thought is dimmed, and the answer begins on a line of its own."""

    def __init__(self) -> None:
        self.was_thought: bool | None = None
        self.is_at_start = True

    def write(self, text: str, *, is_thought: bool) -> None:
        if self.was_thought is not is_thought:
            text = text.lstrip()
            if not text:
                return
            self.end()
            self.was_thought = is_thought
        for number, part in enumerate(text.split("\n")):
            if number:
                self.end()
            if part:
                self._put(printable(part), is_thought)

    def _put(self, text: str, is_thought: bool) -> None:
        styled = f"\033[2m{text}\033[0m" if is_thought and not is_plain() else text
        print("  " + styled if self.is_at_start else styled, end="", flush=True)
        self.is_at_start = False

    def end(self) -> None:
        if not self.is_at_start:
            say("")
        self.is_at_start = True


def shown(path: Path) -> str:
    """The path as a person in this folder would write it."""
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative


if __name__ == "__main__":
    sys.exit(main())
