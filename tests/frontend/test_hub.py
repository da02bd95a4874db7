"""What is downloaded from a hub, in which order, and what is said where that can't be. Over huggingface_hub itself."""

import json
import shutil
import socket
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.gguf_file import write_gguf
from builders.hub import hub_with_empty_cache, point_at
from builders.tiny_model import tiny_model
from builders.watching import wait_until
from huggingface_hub import constants

from penstock.frontend import cli
from penstock.frontend.models.hub import progress
from penstock.frontend.models.model_files import find_model, find_tokenizer, require_known
from penstock.frontend.text import convert_tokenizer
from penstock.protocol.conversion import Conversion
from penstock.protocol.errors import ConfigError, ModelNotFoundError, PenstockError
from penstock.worker.convert.convert import convert

WEIGHTS = "model.safetensors"
DESCRIPTIONS = {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("made") / "tiny", "qwen3")


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with hub_with_empty_cache(tmp_path / "hub", monkeypatch) as running:
        yield running


def test_only_what_the_engine_reads_is_taken_and_only_once(hub, made, capsys):
    others = (
        "pytorch_model.bin", "model.gguf", "README.md", "modeling_tiny.py", "original/consolidated.safetensors",
        "onnx/config.json", "consolidated.safetensors", "fp16/model.safetensors", "original/params.json",
        "tokenizer.model", "checkpoint-5/trainer_state.json", "adapter_model.safetensors",
    )  # fmt: skip
    taken = {
        "chat_template.jinja": b"{{ 1 }}", "additional_chat_templates/tool.jinja": b"2", "1_Pooling/config.json": b"{}",
    }  # fmt: skip
    hub.put("owner/tiny", made, files=dict.fromkeys(others, b"x") | taken)
    assert (find_tokenizer("owner/tiny") / "tokenizer.json").is_file()
    assert set(hub.fetched()) == DESCRIPTIONS | set(taken), "a tokenizer comes without weights"
    found = find_model("owner/tiny", is_quiet=True)
    there = {path.relative_to(found.folder).as_posix() for path in found.folder.rglob("*") if path.is_file()}
    assert there == set(hub.fetched()) == DESCRIPTIONS | set(taken) | {WEIGHTS}
    assert (found.folder / WEIGHTS).read_bytes() == (made / WEIGHTS).read_bytes()
    hub.requests.clear()
    assert find_model("owner/tiny", is_quiet=True) == found
    assert [each.path for each in hub.requests if "agent" not in each.path] == ["/api/models/owner/tiny/revision/main"]
    assert capsys.readouterr() == ("", ""), "where it is quiet nothing is said"


def test_a_vocabulary_is_taken_where_there_is_no_tokenizer_json(hub, made, monkeypatch):
    files = {path.name: path.read_bytes() for path in made.iterdir() if path.name != "tokenizer.json"}
    hub.put("owner/old", files=files | {"vocab.txt": b"a\nb\n", "vocab.json": b"{}", "merges.txt": b"a b\n"})
    monkeypatch.setattr(convert_tokenizer, "_convert", lambda source, target: (target / "tokenizer.json").touch())
    find_model("owner/old", is_quiet=True)
    assert {"vocab.txt", "vocab.json", "merges.txt"} <= set(hub.fetched())


def test_a_revision_is_an_option_or_part_of_the_name(hub, made):
    hub.put("owner/tiny", made)
    second = hub.put("owner/tiny", made, files={"generation_config.json": b"{}"}, revision="refs/pr/2")
    by_option = find_model("owner/tiny", revision="refs/pr/2", is_quiet=True).folder
    assert by_option.name == second.commit
    assert find_model("owner/tiny@refs/pr/2", is_quiet=True).folder == by_option
    assert find_model(f"owner/tiny@{second.commit}", is_quiet=True).folder == by_option
    assert find_model("owner/tiny", is_quiet=True).folder != by_option


@for_each("change, sentence", [
    ({"architectures": ["HeliumForCausalLM"]}, "names the architecture HeliumForCausalLM"),
    ({"architectures": None}, "names the architecture none"),
    ({"hidden_act": "mish"}, "hidden_act='mish' is not supported"),
    ({"num_hidden_layers": "two"}, "num_hidden_layers must be"),
    ({"quantization_config": {"quant_method": "nothing"}}, "nothing"),
])  # fmt: skip
def test_a_model_that_would_not_load_is_refused_before_its_weights(hub, made, change, sentence):
    config = json.loads((made / "config.json").read_text()) | change
    hub.put("owner/odd", made, files={"config.json": json.dumps(config).encode()})
    with pytest.raises(ConfigError, match=sentence) as error:
        find_model("owner/odd", is_quiet=True)
    assert "None of its weights were downloaded (441 KiB)" in str(error.value)
    assert WEIGHTS not in hub.fetched()


@for_each("missing, others, sentence", [
    ("config.json", {}, "holds no config.json"),
    (WEIGHTS, {"pytorch_model.bin": b"x", "a.gguf": b""}, r"weights are \*\.bin, \*\.gguf, and only"),
    (WEIGHTS, {}, r"holds no \*\.safetensors"), ("tokenizer.json", {}, "holds no tokenizer"),
])  # fmt: skip
def test_a_repository_that_lacks_what_models_have_is_refused_unfetched(hub, made, missing, others, sentence):
    files = {path.name: path.read_bytes() for path in made.iterdir() if path.name != missing}
    hub.put("owner/part", files=files | others)
    with pytest.raises(ConfigError, match=sentence):
        find_model("owner/part", is_quiet=True)
    assert hub.fetched() == []
    if missing == "tokenizer.json":
        assert find_model("owner/part", made, is_quiet=True).tokenizer_folder == made


def test_what_is_there_needs_no_room_and_is_not_downloaded_again(hub, made, tmp_path, monkeypatch, capsys):
    content = (made / WEIGHTS).read_bytes()
    repository = hub.put("owner/tiny", made)
    find_tokenizer("owner/tiny")
    unfinished = tmp_path / "hub/models--owner--tiny/blobs" / f"{repository.etag(WEIGHTS)}.incomplete"
    unfinished.write_bytes(content[:-1000])
    usage = namedtuple("Usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(999))
    too_much = "1000 B are still to be downloaded.*999 B are free there, 1 B too little.*HF_HUB_CACHE"
    with pytest.raises(ConfigError, match=f"(?s){too_much}"):
        find_model("owner/tiny", is_quiet=True)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1000))
    capsys.readouterr()
    before = find_model("owner/tiny").folder
    assert capsys.readouterr().err.startswith("Downloading owner/tiny: 1 file of weights, 441 KiB")
    assert (before / WEIGHTS).read_bytes() == content and hub.ranges(WEIGHTS) == [f"bytes={len(content) - 1000}-"]
    hub.put("owner/tiny", made, files={"generation_config.json": b"{}"})
    hub.requests.clear()
    after = find_model("owner/tiny").folder
    assert after != before and (after / WEIGHTS).samefile(before / WEIGHTS)
    assert hub.fetched() == ["generation_config.json"] and capsys.readouterr().err == ""


def test_two_that_want_the_same_file_fetch_it_once(hub, made, tmp_path):
    hub.put("owner/tiny", made)
    hub.stops_at[WEIGHTS] = 300_000
    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(find_model, "owner/tiny", is_quiet=True) for _ in range(2)]
        assert hub.is_stopped.wait(60)
        wait_until(lambda: hub.num_listings() == 2, "the other one has looked for it, too")
        hub.go_on.set()
    first, second = (each.result().folder for each in found)
    assert first == second and (first / WEIGHTS).read_bytes() == (made / WEIGHTS).read_bytes()
    assert hub.ranges(WEIGHTS) == [None]
    assert not list((tmp_path / "hub").glob("models--*/blobs/*incomplete"))


def test_a_hub_that_fails_in_the_middle_is_a_sentence_and_a_broken_connection_is_gone_on_with(hub, made):
    hub.put("owner/tiny", made)
    find_tokenizer("owner/tiny")
    hub.status_of_files = 500
    with pytest.raises(PenstockError, match="broke off: it answers with status 500; try again later"):
        find_model("owner/tiny", is_quiet=True)
    hub.status_of_files = 0
    hub.requests.clear()
    hub.breaks_at[WEIGHTS] = 300_000
    assert (find_model("owner/tiny", is_quiet=True).folder / WEIGHTS).read_bytes() == (made / WEIGHTS).read_bytes()
    assert hub.ranges(WEIGHTS) == [None, "bytes=300000-"]


@for_each("options, token, sentences", [
    ({"token": "t", "is_gated": True}, None, ["needs its owner's consent", "/owner/tiny", "HF_TOKEN"]),
    ({"token": "t", "is_gated": True}, "other", ["needs its owner's consent", "has not got it"]),
    ({"token": "t"}, None, ["no model owner/tiny, or it is private", "spelling", "HF_TOKEN"]),
    ({"token": "t"}, "other", ["no model owner/tiny, or it is private"]),
])  # fmt: skip
def test_who_may_not_read_a_model_is_told_what_to_do(hub, made, tmp_path, monkeypatch, options, token, sentences):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    hub.put("owner/tiny", made, **options)
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ModelNotFoundError) as error:
        find_model("owner/tiny", is_quiet=True)
    assert all(sentence in str(error.value) for sentence in sentences), error.value
    monkeypatch.setenv("HF_TOKEN", "t")
    assert (find_model("owner/tiny", is_quiet=True).folder / WEIGHTS).is_file()
    assert not any(each.has_token for each in hub.requests if "/cdn/" in each.path), "no other host hears the token"
    for name, sentence in (("owner/tyni", "Check the spelling"), ("owner/tiny@v9", "owner/tiny has no revision v9")):
        with pytest.raises(ModelNotFoundError, match=sentence):
            find_model(name)


@for_each(
    "status, sentence", {401: "token is not valid", 403: "is refused", 429: "too often", 503: "status 503"}.items()
)
def test_whatever_a_hub_answers_is_a_sentence(hub, made, status, sentence):
    hub.status = status
    hub.error_message = "Invalid credentials in Authorization header" if status == 401 else ""
    with pytest.raises(ModelNotFoundError, match=sentence):
        find_model("owner/tiny")


def unreachable(monkeypatch) -> None:
    """Nobody listens there."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        point_at(f"http://127.0.0.1:{closed.getsockname()[1]}", monkeypatch)


def offline(monkeypatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)


@for_each("cut", [unreachable, offline])
def test_what_is_cached_runs_without_a_network_and_where_the_hub_says_no(hub, made, cut, monkeypatch):
    hub.put("owner/tiny", made)
    found = find_model("owner/tiny", is_quiet=True)
    for hub.status in (500, 403):
        assert find_model("owner/tiny", is_quiet=True) == found
    hub.status = 0
    cut(monkeypatch)
    assert find_model("owner/tiny", is_quiet=True) == found
    with pytest.raises(ModelNotFoundError, match="No model 'owner/other' was found") as error:
        find_model("owner/other")
    why = str(error.value).splitlines()[-1]
    assert "owner/other is not in the cache" in why and "give its path" in why
    assert ("is not reachable: " if cut is unreachable else "HF_HUB_OFFLINE says to ask no hub") in why


def test_offline_a_shard_that_is_missing_is_named(hub, made, monkeypatch):
    index = {"weight_map": {"a": WEIGHTS, "b": "model-2.safetensors"}}
    more = {"model.safetensors.index.json": json.dumps(index).encode(), "model-2.safetensors": b"x"}
    hub.put("owner/tiny", made, files=more)
    folder = find_model("owner/tiny", is_quiet=True).folder
    (folder / "model-2.safetensors").unlink()
    offline(monkeypatch)
    with pytest.raises(ModelNotFoundError, match=r"of owner/tiny the cache .* lacks model-2\.safetensors"):
        find_model("owner/tiny", is_quiet=True)


def test_without_a_terminal_lines_are_few(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    shown = progress.download_progress("owner/tiny", 100 << 20, 0, is_quiet=False)
    for _ in range(1000):
        now[0] += 0.06
        shown.add((100 << 20) // 1000 + 1)
    shown.close()
    lines = capsys.readouterr().err.splitlines()
    assert 3 <= len(lines) <= 7
    assert lines[0].startswith("owner/tiny: 17 MiB of 100 MiB, 2 MiB/s, 50 s left")
    assert lines[-1].startswith("owner/tiny: 100 MiB are there, after 60 s")


NAME = "owner/tiny-GGUF"


@pytest.fixture(scope="module")
def content(made, tmp_path_factory) -> bytes:
    target = tmp_path_factory.mktemp("made") / "tiny.gguf"
    convert(Conversion(str(made), str(made), str(target), "q8_0", is_gguf=True), lambda said: None)
    return target.read_bytes()


@pytest.fixture
def gguf_hub(hub, tmp_path, own_cache, content):
    """It has a repository of two quantizations."""
    models = {"tiny-Q8_0.gguf": content, "tiny-Q4_K_M.gguf": content + bytes(32)}
    eyes = write_gguf(tmp_path / "eyes.gguf", {"general.architecture": "clip"}).read_bytes()
    others = {"mmproj-F16.gguf": eyes, "mmproj-F32.gguf": eyes + bytes(32), "README.md": b"x"}
    hub.put(NAME, files=models | others)
    return hub


def test_only_the_files_of_the_quantization_are_taken_also_by_pull(gguf_hub, tmp_path, capsys):
    found = find_model(f"{NAME}:Q8_0", is_quiet=True)
    assert (found.folder / "config.json").is_file() and (found.tokenizer_folder / "tokenizer.json").is_file()
    assert set(gguf_hub.fetched()) == {"tiny-Q8_0.gguf", "mmproj-F16.gguf"}
    assert {path.name for path in (tmp_path / "hub").rglob("*.gguf")} == {"mmproj-F16.gguf", "tiny-Q8_0.gguf"}
    assert cli.main(["pull", f"{NAME}:Q4_K_M", "--quiet"]) == 0
    assert f"{NAME}:Q4_K_M is ready" in capsys.readouterr().out and "tiny-Q4_K_M.gguf" in gguf_hub.fetched()


def test_what_is_there_runs_without_the_hub_and_is_not_fetched_again(gguf_hub):
    found = find_model(f"{NAME}:q8_0", is_quiet=True)
    fetched = list(gguf_hub.fetched())
    assert find_model(f"{NAME}:q8_0", is_quiet=True) == found and gguf_hub.fetched() == fetched
    gguf_hub.status = 503
    assert find_model(f"{NAME}:q8_0", is_quiet=True) == found
    with pytest.raises(ModelNotFoundError, match="Q4_K_M"):
        find_model(f"{NAME}:Q4_K_M", is_quiet=True)


def test_a_quantization_that_is_not_there_is_told_with_those_that_are(gguf_hub):
    with pytest.raises(ConfigError, match=r"has no Q5_K_M\..* There are Q4_K_M, Q8_0\."):
        find_model(f"{NAME}:Q5_K_M", is_quiet=True)
    with pytest.raises(ConfigError, match=f"weights are GGUF files, Q4_K_M, Q8_0. Name one of them: {NAME}:Q4_K_M"):
        find_model(NAME, is_quiet=True)
    assert not gguf_hub.fetched()
    require_known(f"{NAME}:Q8_0")
    with pytest.raises(ModelNotFoundError):
        require_known("owner/other:Q8_0")
