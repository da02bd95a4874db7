"""`penstock chat`: what typed lines mean, how an answer is written, and all of it through pipes."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator

import pyte
import pytest
from builders.cases import for_each
from builders.shell import STAND_IN

from penstock.frontend.commands.repl.answer_text import AnswerText
from penstock.frontend.commands.repl.chat_input import ChatInput, read_input
from penstock.frontend.commands.repl.conversation import AnswerDelta, Conversation
from penstock.frontend.commands.repl.slash import command_word
from penstock.frontend.commands.repl.terminal import add_to_history, read_history
from penstock.protocol.errors import RequestError
from penstock.protocol.outputs import CompletionOutput, FunctionCall, RequestOutput, Samples, ToolCall
from penstock.protocol.parameters.sampling import SamplingParams


def typed(*lines: str) -> Iterator[ChatInput]:
    """All messages of these lines."""
    left = list(lines)

    def read_line(is_continued: bool) -> str:
        if not left:
            raise EOFError
        return left.pop(0)

    while left:
        yield read_input(read_line)


@for_each("lines, texts", [
    (["one \\", "two\\", "three", "four"], ["one \ntwo\nthree", "four"]),
    (["the end\\"], ["the end"]),
    (['"""', "one", "", "two\\", '"""', "three"], ["one\n\ntwo\\", "three"]),
    (['"""one"""', '"""two', 'three"""  '], ["one", "two\nthree"]),
    (['"""', "never closed"], ["never closed"]), (["pasted\n  at once\n"], ["pasted\n  at once"]),
    (["", "  "], ["", "  "]),
])  # fmt: skip
def test_lines_become_messages_and_a_block_is_never_a_command(lines, texts):
    assert [message.text for message in typed(*lines)] == texts
    assert [message.may_be_command for message in typed("/reset", '"""/reset"""')] == [True, False]


@for_each("text, word", [
    ("/reset", "/reset"), ("/system Be brief.\nVery.", "/system"), ("/usr/bin\n/usr/lib\nWhat are these?", None),
    ("not /reset", None),
])  # fmt: skip
def test_a_command_begins_with_a_slash_and_pasted_paths_are_none(text, word):
    assert command_word(text) == word


def test_history_comes_back_whole_in_order_and_bounded(tmp_path):
    path = tmp_path / "state" / "history"
    assert read_history(path) == []
    for number in range(1100):
        add_to_history(path, f"line\n{number} ä")
    with open(path, "a") as file:
        file.write("damaged\n")
    assert read_history(path)[-1] == "line\n1099 ä"
    assert len(read_history(path)) == 1000
    assert path.stat().st_mode & 0o077 == 0


def written(capsys, pieces: list[AnswerDelta], *, is_coloured: bool = True) -> str:
    answer = AnswerText(is_coloured)
    for piece in pieces:
        answer.write(piece)
    answer.end()
    return capsys.readouterr().out


def test_thoughts_are_dimmed_or_named_and_stand_on_lines_of_their_own(capsys):
    parts = (("\n", ""), ("Two ", ""), ("and two.\n", "\n\n"), ("", "It is 4.\n"), ("", "\nYes."))
    pieces = [AnswerDelta(*part) for part in parts]
    screen = pyte.Screen(40, 6)
    pyte.Stream(screen).feed(written(capsys, pieces).replace("\n", "\r\n"))
    assert [line.rstrip() for line in screen.display] == ["Two and two.", "It is 4.", "", "Yes.", "", ""]
    assert written(capsys, pieces).startswith("\x1b[2mTwo\x1b[0m\x1b[2m and two.\n\x1b[0mIt is 4.")
    plain = [AnswerDelta("Two and two.", ""), AnswerDelta("", "4")]
    assert written(capsys, plain, is_coloured=False) == "(thinking) Two and two.\n4\n"


def test_a_model_cannot_steer_the_terminal(capsys):
    assert written(capsys, [AnswerDelta("", "\x1b[2Ja\rb\x07\x9b1A\tc\n")]) == "␛[2Ja␍b␇�1A\tc\n"


class Model:
    """Stands in for an `LLM`: says what it was told to, and remembers what it was asked."""

    def __init__(self, *outputs: CompletionOutput, refusal: str | None = None) -> None:
        self.outputs = outputs
        self.refusal = refusal
        self.asked: list[list[dict[str, str]]] = []
        self.was_closed = False

    def stream(self, messages, params, chat_template_kwargs) -> Iterator[RequestOutput]:
        if self.refusal is not None:
            raise RequestError(self.refusal)

        def streamed() -> Iterator[RequestOutput]:
            try:
                for output in self.outputs:
                    yield RequestOutput("0", None, [1, 2, 3], Samples([output]))
            finally:
                self.was_closed = True

        self.asked.append(messages)
        return streamed()


THOUGHT = CompletionOutput(reasoning_content="Two and two.", token_ids=[5])
TEXT = CompletionOutput(text="It is", token_ids=[6])
END = CompletionOutput(text=" 4.", token_ids=[7, 8], finish_reason="stop")
QUESTION = {"role": "user", "content": "2+2?"}


def conversation(*outputs: CompletionOutput, refusal: str | None = None) -> Conversation:
    return Conversation(Model(*outputs, refusal=refusal), SamplingParams())


def test_a_turn_is_kept_with_its_thoughts_apart_and_told_to_the_model_in_the_next():
    chat = conversation(THOUGHT, TEXT, END)
    assert list(chat.ask("2+2?")) == [AnswerDelta("Two and two.", ""), AnswerDelta("", "It is"), AnswerDelta("", " 4.")]
    answer = {"role": "assistant", "content": "It is 4.", "reasoning_content": "Two and two."}
    assert chat.turns == [QUESTION, answer]
    assert (chat.answer.num_output, chat.remark()) == (4, None)
    call = CompletionOutput(tool_calls=[ToolCall("1", FunctionCall("weather", '{"city": "Rome"}'))])
    assert AnswerDelta.of(call) == AnswerDelta("", 'weather{"city": "Rome"}')
    list(chat.ask("Sure?"))
    assert chat.llm.asked[1] == [QUESTION, answer, {"role": "user", "content": "Sure?"}]


@for_each("outputs, num_read, messages, remark", [
    ((TEXT, END), 1, [QUESTION, {"role": "assistant", "content": "It is"}], "stopped"),
    ((THOUGHT, TEXT, END), 1, [QUESTION], "stopped within its thoughts; /retry asks the message again"),
    ((TEXT, END), 0, [QUESTION], "stopped; /retry asks the message again"),
])  # fmt: skip
def test_a_stopped_answer_is_ended_and_kept_as_far_as_it_came(outputs, num_read, messages, remark):
    chat = conversation(*outputs)
    pieces = chat.ask("2+2?")
    for _ in range(num_read):
        next(pieces)
    pieces.close()
    assert chat.llm.was_closed == (num_read > 0) and len(chat.llm.asked) == num_read
    assert chat.messages == messages and chat.turns == (messages if len(messages) > 1 else [])
    assert chat.remark() == remark
    list(chat.retry())
    assert [message["content"] for message in chat.messages] == ["2+2?", "It is 4."]
    chat.retry().close()
    assert chat.remark() == "stopped; the answer before stays"


CUT = "cut within its thoughts at 1 tokens (--max-tokens); /set max_tokens allows more; /retry asks the message again"


REPEATED = {"text": "ha ha ha", "stop_reason": "repetition"}
LET_GO_ON = 'ended: it repeated itself; /set early_stop {"enable_early_stop": false} lets it go on'


@for_each("said, max_tokens, reason, remark", [
    ({"reasoning_content": "Two"}, 1, "length", CUT),
    ({"reasoning_content": "Two"}, 9, "length", "cut within its thoughts: the context is full with 4 tokens; /reset"),
    ({}, 1, "length", "cut at 1 tokens (--max-tokens); /retry asks the message again"),
    ({"reasoning_content": "Two"}, 9, "stop", "ended within its thoughts without an answer"),
    ({}, 9, "stop", "ended without an answer"), (REPEATED, 9, "stop", LET_GO_ON),
])  # fmt: skip
def test_an_answer_says_how_it_ended_and_what_to_do(said, max_tokens, reason, remark):
    end = CompletionOutput(**said, token_ids=[5], finish_reason=reason)
    chat = Conversation(Model(end), SamplingParams(max_tokens=max_tokens))
    list(chat.ask("2+2?"))
    assert chat.remark().startswith(remark)


@for_each("refusal, between", [("The template refuses it: no.", " "), ("unclosed group\n    (\n    ^", "\n")])
def test_a_conversation_that_its_template_refuses_says_so_and_goes_on(refusal, between):
    chat = conversation(refusal=refusal)
    assert list(chat.ask("2+2?")) == [] and chat.turns == []
    assert chat.remark().startswith(f"{refusal}{between}The message has no answer: /retry")


@pytest.fixture
def piped(shell, shell_model) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """A chat between pipes, of this process."""
    return lambda text, *words: shell.run("chat", shell_model, *STAND_IN, "--quiet", *words, stdin=text)


def test_a_pipe_gets_the_answer_and_nothing_else(piped):
    done = piped("Hello\n", "--max-tokens", 5)
    assert done.returncode == 0
    assert done.stdout.endswith("\n") and len(done.stdout) > 1
    assert re.findall(r"\x1b\[|^> |Ctrl-D", done.stdout) == []
    assert done.stderr == "penstock: cut at 5 tokens (--max-tokens)\n"


def test_each_line_of_a_pipe_is_a_turn_of_one_conversation_until_reset_which_keeps_the_system_text(piped, tmp_path):
    (tmp_path / "thesis").write_text("years of work")
    lines = ["/system Be brief.", "one", "two \\", "three", '"""', "/four", '"""', f"/save {tmp_path}/saved.json"]
    lines += ["/reset", f"/save {tmp_path}/reset.json", f"/save {tmp_path}/reset.json", f"/save {tmp_path}/thesis"]
    done = piped("\n".join(lines), "--max-tokens", 3)
    assert done.stderr.count("1 message is in") == 2, "a conversation may be saved again"
    assert "left alone" in done.stderr and (tmp_path / "thesis").read_text() == "years of work"
    saved, after = (json.loads((tmp_path / name).read_text()) for name in ("saved.json", "reset.json"))
    assert after == saved[:1] == [{"role": "system", "content": "Be brief."}]
    assert [message["role"] for message in saved] == ["system"] + 3 * ["user", "assistant"]
    contents = [message["content"] for message in saved if message["role"] != "assistant"]
    assert contents == ["Be brief.", "one", "two \nthree", "/four"]


def test_a_turn_that_would_not_fit_is_refused_with_figures_and_the_conversation_goes_on(piped, tmp_path):
    lines = ["short", "far too long " * 20, "/reset", "short", f"/save {tmp_path}/saved.json"]
    done = piped("\n".join(lines), "--max-model-len", 64, "--max-tokens", 4)
    assert done.returncode == 1
    assert "max_model_len=64" in done.stderr
    assert "The message has no answer: /retry asks it again, /reset starts a new conversation." in done.stderr
    assert json.loads((tmp_path / "saved.json").read_text())[0]["content"] == "short"


def test_an_unknown_command_names_the_nearest_one_and_bytes_that_are_no_text_end_nothing(piped):
    done = piped(b"/rest\n\xff\xfe caf\xe9\n", "--max-model-len", 64)
    assert done.returncode == 0 and "Traceback" not in done.stderr and "Did you mean /reset?" in done.stderr
    assert "cut: the context is full with 64 tokens; /reset starts a new conversation" in done.stderr
