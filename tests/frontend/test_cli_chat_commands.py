"""The commands of `penstock chat`: what they change, what they refuse, and what Tab makes of a line."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders.cases import for_each

from penstock.frontend.commands.repl import model as model_file
from penstock.frontend.commands.repl.model import ChatModel, ChatState
from penstock.frontend.commands.repl.parameters import PARAMETERS
from penstock.frontend.commands.repl.slash import COMMANDS, completions, run_command
from penstock.protocol.errors import ConfigError, PenstockError
from penstock.protocol.outputs import CompletionOutput, RequestOutput, Samples
from penstock.protocol.parameters.sampling import SamplingParams


class Model:
    """Stands in for an `LLM`: says its name and how many messages it was told; of the word "nothing", nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False
        self.params: list[SamplingParams] = []
        self._session = SimpleNamespace(sees=name == "first")

    def get_default_sampling_params(self) -> SamplingParams:
        return SamplingParams(temperature=0.5)

    def stream(self, messages, params, chat_template_kwargs) -> Iterator[RequestOutput]:
        self.params.append(params)
        text = "" if messages[-1]["content"] == "nothing" else f"{self.name} {len(messages)} {len(self.params)}"
        yield RequestOutput("0", None, [1], Samples([CompletionOutput(text=text, finish_reason="length")]))

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture(autouse=True)
def models(monkeypatch) -> None:
    """There are "first" and "other", and a broken one that is found only while it loads."""

    def load(name: str, options: dict[str, object]) -> Model:
        if name == "broken":
            raise PenstockError("broken was not loaded.")
        return Model(name)

    def require_model(config) -> None:
        if config.model == "missing":
            raise PenstockError("There is no missing.")

    monkeypatch.setattr(model_file, "load", load)
    monkeypatch.setattr(model_file, "require_model", require_model)


def begun() -> tuple[ChatState, Callable[[str], str]]:
    """A chat, and a function that types a line into it and returns the reply."""
    chat = ChatState.begun(ChatModel("first", {"tokenizer": "own", "quiet": True}), {"top_p": 0.75})

    def say(line: str) -> str:
        reply = run_command(chat, line.split(" ")[0], line) if line.startswith("/") else chat.conversation.ask(line)
        return reply if isinstance(reply, str) else "".join(piece.text for piece in reply)

    return chat, say


@pytest.fixture
def begun_chat() -> tuple[ChatState, Callable[[str], str]]:
    return begun()


@pytest.fixture
def chat(begun_chat) -> ChatState:
    return begun_chat[0]


@pytest.fixture
def say(begun_chat) -> Callable[[str], str]:
    return begun_chat[1]


def contents(chat: ChatState) -> list[str]:
    return [message["content"] for message in chat.conversation.messages]


@for_each("line, name, value", [
    ("/set temperature 0.25", "temperature", 0.25), ("/set temperature = 0.25", "temperature", 0.25),
    ("/set max-tokens 5", "max_tokens", 5), ("/set ignore_eos on", "ignore_eos", True),
    ("/set stop two words", "stop", ["two words"]), ('/set stop ["a", "b"]', "stop", ["a", "b"]),
    ("/set stop_token_ids 1, 2", "stop_token_ids", [1, 2]),
    ("/set stop_token_ids [1, 2]", "stop_token_ids", [1, 2]),
    ('/set logit_bias {"5": 1}', "logit_bias", {5: 1.0}), ("/set top_p default", "top_p", 1.0),
    ("/set max_thinking_tokens 9", "reasoning_max_tokens", 9),
    ("/set frequence-penalty 0.5", "frequency_penalty", 0.5),
])  # fmt: skip
def test_a_parameter_that_was_set_holds_from_the_next_message_on(line, name, value):
    chat, say = begun()
    assert "from the next message on" in say(line)
    say("hello")
    [params] = chat.model.llm.params
    assert getattr(params, name) == value
    assert params.top_p == (1.0 if name == "top_p" else 0.75)  # as the command line had it


@for_each("line, sentence", [
    ("/set temperature -1", "temperature=-1: must be a finite number, 0 or more."),
    ("/set temperature warm", "temperature='warm': must be a finite number"),
    ("/set ignore_eos maybe", "ignore_eos='maybe': must be on or off."),
    ("/set logit_bias {5", "logit_bias: '{5' is not JSON"), ("/set temprature 1", "Did you mean temperature?"),
    ("/set penalty 1", "Did you mean presence_penalty or frequency_penalty or repetition_penalty?"),
    ("/set xyz 1", "There is no parameter 'xyz'. /set lists them."),
    ("/set n 2", "n can't be set in a chat. `penstock generate` takes --n."),
    ("/set prompt-logprobs 2", "`penstock generate` takes --prompt-logprobs."),
    ("/set seed 2", "seed can't be set in a chat. `penstock chat` takes --seed."),
    ("/set min_tokens 50", "min_tokens=50 is more than max_tokens=9"),
])  # fmt: skip
def test_what_can_not_be_set_is_said_and_changes_nothing(line, sentence):
    chat, say = begun()
    say("/set max_tokens 9")
    before = chat.conversation.params
    assert sentence in say(line)
    assert chat.conversation.params == before


def test_every_parameter_is_listed_with_its_value_and_those_that_were_set_stand_out(say):
    lines = {line[2:].split()[0]: line for line in say("/set").splitlines()}
    assert lines.keys() == PARAMETERS.keys()
    assert not [line for line in lines.values() if line.endswith("the same")]  # as which other one?
    assert lines["top_p"].startswith("* top_p") and " 0.75 " in lines["top_p"]
    assert lines["temperature"].startswith("  temperature") and " 0.5 " in lines["temperature"]
    assert say("/set top_p").startswith("top_p is 0.75: sample from the likeliest")
    assert say("/set temperature").startswith("temperature is 0.5, as the model has it: ")


def test_a_message_without_an_answer_waits_for_retry_or_undo_and_an_answer_stays_where_nothing_new_comes(chat, say):
    say("one"), say("nothing")
    assert contents(chat) == ["one", "first 1 1", "nothing"] and chat.conversation.unanswered == "nothing"
    say("/retry")
    assert chat.conversation.unanswered == "nothing" and len(chat.model.llm.params) == 3
    assert say("/undo") == "Removed: 'nothing'. 2 messages are left."
    assert contents(chat) == ["one", "first 1 1"]
    chat.conversation.turns[0]["content"] = "nothing"
    say("/retry")
    assert contents(chat) == ["nothing", "first 1 1"]
    chat.conversation.retry().close()  # stopped before it began
    assert contents(chat) == ["nothing", "first 1 1"]


def test_retry_replaces_the_last_answer_and_undo_forgets_it_with_its_message_and_then_the_one_before(chat, say):
    assert say("/retry") == "There is no message to ask again."
    say("/system Be brief."), say("one"), say("two")
    assert say("/retry") == "first 4 3" and contents(chat) == ["Be brief.", "one", "first 2 1", "two", "first 4 3"]
    assert say("/undo") == "Removed with its answer: 'two'. 3 messages are left."
    assert contents(chat) == ["Be brief.", "one", "first 2 1"]
    assert say("/undo").endswith("1 message is left.")
    assert say("/undo") == "There is no message to remove."


@for_each("quote", ["", '"', "'"])
def test_what_was_saved_is_loaded_and_goes_on(quote, tmp_path):
    chat, say = begun()
    say("/system Be brief."), say("one")
    path = f"{quote}{tmp_path}/a name with spaces.json{quote}"
    assert "3 messages are in" in say(f"/save {path}")
    assert [found.name for found in tmp_path.iterdir()] == ["a name with spaces.json"]
    say("/reset"), say("/system"), say("other"), say("nothing")
    assert say(f"/load {path}") == "3 messages are there."
    assert contents(chat) == ["Be brief.", "one", "first 2 1"] and chat.conversation.system == "Be brief."
    assert say("two") == "first 4 4"
    say("/undo"), chat.conversation.turns.pop()
    (tmp_path / "again").touch()  # which loses nothing
    say(f"/save {tmp_path}/again"), say("/reset")
    assert say(f"/load {tmp_path}/again").startswith("2 messages are there; the last one has no answer yet: /retry")
    assert say("/retry") == "first 2 5" and contents(chat) == ["Be brief.", "one", "first 2 5"]


@for_each(
    "content", ["", "{}", "[1]", '[{"role": "user"}]', '[{"role": "user", "content": []}]', "[" * 100_000, "\xff"]
)
def test_what_is_no_conversation_leaves_the_one_that_there_is(tmp_path, content):
    chat, say = begun()
    (tmp_path / "file").write_bytes(content.encode("latin-1"))
    say("one")
    assert "the conversation is as it was" in say(f"/load {tmp_path}/file")
    for name in ("missing", ".", "../null"):
        assert name in say(f"/load {tmp_path}/{name}")
    assert "/dev/null" in say("/load /dev/null") and contents(chat) == ["one", "first 1 1"]


def test_another_model_goes_on_with_the_conversation_and_the_parameters(chat, say):
    say("one")
    first = chat.model.llm
    assert say("/model other").startswith("other answers from the next message on")
    assert first.is_closed and say("two") == "other 3 1"
    assert chat.model.llm.params[0].top_p == 0.75
    assert "This is other." in say("/model")
    assert chat.model._options == {"quiet": True}, "the first one's tokenizer is no other's"


@for_each("name, sentence", [("missing", "There is no missing."), ("broken", "broken was not loaded.")])
def test_a_model_that_can_not_be_loaded_leaves_the_one_that_there_was(name, sentence):
    chat, say = begun()
    first = chat.model.llm
    assert say(f"/model {name}") == f"{sentence}\nfirst is still used."
    assert say("one") == "first 1 1"
    assert (chat.model.llm is first) == (name == "missing") and first.is_closed == (name == "broken")


def test_a_chat_ends_where_no_model_can_be_loaded_any_more(chat, say, monkeypatch):
    def load(name: str, options: dict[str, object]) -> Model:
        raise PenstockError(f"{name} was not loaded.")

    monkeypatch.setattr(model_file, "load", load)
    with pytest.raises(PenstockError, match="first was not loaded."):
        say("/model other")
    monkeypatch.setattr(model_file.EngineConfig, "from_options", lambda name, **options: int(None))  # a TypeError
    with pytest.raises(ConfigError):
        chat.model.change("other")


SHAPES = Path(__file__).parents[2] / "docs" / "images" / "shapes.png"


def test_pictures_go_with_the_next_message_and_into_the_saved_file(chat, say, tmp_path):
    spaced = tmp_path / "two words.png"
    spaced.write_bytes(SHAPES.read_bytes())
    assert say(f"/image {SHAPES}") == "shapes.png: 3,710 bytes. It will be sent with the next message."
    assert say(f"/image {spaced} Which is it?") == "first 1 1"
    [content, _] = contents(chat)
    assert [part["type"] for part in content] == ["image_url", "image_url", "text"]
    assert content[2]["text"] == "Which is it?", "the name goes as far as there is such a file"
    spaced.unlink()
    say("And now?"), say(f"/save {tmp_path}/saved"), say("/reset"), say(f"/load {tmp_path}/saved")
    assert contents(chat)[0] == content and contents(chat)[2] == "And now?", "each picture goes with one message"
    say("/undo")
    assert say("/undo") == "Removed with its answer: '[2 attached] Which is it?'. 0 messages are left."


def test_a_picture_that_is_none_or_that_nobody_sees_is_refused(chat, say):
    assert say("/image") == "Name a file: /image FILE, optionally followed by a message"
    assert "No such file" in say("/image nowhere.png What is it?")
    say("/model other")
    assert say(f"/image {SHAPES} What is it?").startswith("This model sees no pictures")
    assert contents(chat) == []


def test_a_loaded_conversation_opens_no_file_and_no_address(say, tmp_path):
    for source in (str(SHAPES), "https://nowhere.invalid/a.png"):
        messages = [{"role": "user", "content": [{"type": "image", "image": source}]}]
        (tmp_path / "file").write_text(json.dumps(messages))
        assert "the conversation is as it was" in say(f"/load {tmp_path}/file")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    (tmp_path / "one folder" / "ünder").mkdir(parents=True)
    for name in ("one.json", "one.txt", ".hidden"):
        (tmp_path / name).write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@for_each("line, wanted", [
    ("/re", ["/retry", "/reset"]), ("/sys", ["/system "]), ("/set temp", ["/set temperature "]),
    ("/set top", ["/set top_p ", "/set top_k "]),
    ("/set ignore_eos o", ["/set ignore_eos on", "/set ignore_eos off"]),
    ("/thinking ", ["/thinking on", "/thinking off"]),
    ("/model poc", ["/model pocket", "/model pocket-sight"]),
    ("/model one", ["/model one folder/"]),
    ("/load one", ["/load one folder/", "/load one.json", "/load one.txt"]),
    ("/load one folder/ü", ["/load one folder/ünder/"]), ("/save .h", ["/save .hidden"]), ("/load nowhere/x", []),
    ("/image one.t", ["/image one.txt"]), ("a message", []), ("", []), ("a /re", []),
])  # fmt: skip
def test_tab_completes_commands_and_what_follows_them(folder, line, wanted):
    chat, _ = begun()
    assert completions(chat, line) == wanted


def test_tab_alone_lists_every_command_and_help_has_them_all(chat, say):
    assert [each.strip() for each in completions(chat, "/")] == list(COMMANDS)
    assert all(name in say("/help") for name in COMMANDS)
