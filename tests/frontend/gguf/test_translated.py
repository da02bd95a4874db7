"""A GGUF file stands as a model's folder in Penstock's cache: made once, whole or not at all, anew where it changed."""

import json
import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.converted_gguf import write_converted
from builders.gguf_file import gguf_bytes, write_gguf
from builders.gguf_mutations import mutated
from builders.tokenizer_kinds import write_tokenizer
from builders.watching import write_unnoticed

from penstock.frontend.models import model_files
from penstock.frontend.models.generation_config import default_params
from penstock.frontend.models.gguf import translated as translated_module
from penstock.frontend.models.gguf import translation
from penstock.frontend.models.gguf.find import GgufFiles, files_of, model_files_in
from penstock.frontend.models.gguf.translated import translated_folder
from penstock.frontend.models.model_files import find_model, find_tokenizer, require_known
from penstock.frontend.models.model_names import name_of
from penstock.protocol.errors import ConfigError, ModelNotFoundError
from penstock.protocol.files import made_folders
from penstock.protocol.processes.bounded_process import Bounds


@pytest.fixture
def file(tmp_path, own_cache):
    (tmp_path / "models").mkdir()
    return write_converted(tmp_path / "models" / "tiny-llama-Q4_K_M.gguf", "llama")


@pytest.fixture
def in_process(monkeypatch):
    """Without a helper process: what it does takes milliseconds then."""

    def translate(files, target):
        if refused := translation.refusal(translation.Job.of(files, target), translation.write_files):
            raise ConfigError(refused)

    monkeypatch.setattr(translated_module, "translate", translate)


def refused(file: Path) -> str | None:
    try:
        translated_folder(files_of(file))
    except ConfigError as error:
        return str(error)
    return None


def test_a_file_is_translated_once_though_several_ask_at_once_and_names_itself(file):
    with ThreadPoolExecutor(6) as threads:
        [folder] = set(threads.map(lambda _: translated_folder(files_of(file)), range(6)))
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    config = json.loads((folder / "config.json").read_text())
    assert config["architectures"] == ["LlamaForCausalLM"]
    assert config["quantization_config"] == {"quant_method": "gguf"}
    assert json.loads((folder / "gguf.json").read_text())["files"] == [str(file)]
    made = (folder / "config.json").stat().st_mtime_ns
    assert translated_folder(files_of(file)) == folder
    assert (folder / "config.json").stat().st_mtime_ns == made


def test_a_file_is_translated_anew_once_it_changed_or_its_folder_is_not_whole(file, in_process):
    before = translated_folder(files_of(file))
    (before / "gguf.json").unlink()
    assert translated_folder(files_of(file)) == before
    assert (before / "gguf.json").is_file()
    write_converted(file, "qwen3")
    after = translated_folder(files_of(file))
    assert json.loads((after / "config.json").read_text())["model_type"] == "qwen3"
    assert before != after
    write_unnoticed(file, file.read_bytes())
    assert translated_folder(files_of(file)) != after


def test_only_so_many_are_kept_those_used_last_and_what_is_not_ours(tmp_path, own_cache, in_process, monkeypatch):
    monkeypatch.setattr(made_folders, "KEPT", 2)
    files = [write_converted(tmp_path / f"{number}.gguf", "llama") for number in range(3)]
    folders, foreign = [], own_cache / "gguf" / "foreign"
    foreign.mkdir(parents=True)
    for number, file in enumerate(files):
        folders.append(translated_folder(files_of(file)))
        os.utime(folders[-1], (number, number))
    assert [folder.exists() for folder in (*folders, foreign)] == [False, True, True, True]


def test_a_file_of_any_name_and_a_folder_with_one_are_found_and_named(file, tmp_path, monkeypatch):
    write_tokenizer(tmp_path / "tokenizer", "byte_level")
    monkeypatch.chdir(file.parent)
    others = {"general.type": "mmproj", "general.architecture": "clip", "clip.projector_type": "qwen2vl_merger"}
    write_gguf(file.with_name("mmproj-of-another-F16.gguf"), others)
    (file.parent / "README.md").write_text("")
    for name in (file.name, "."):
        found = find_model(name, tmp_path / "tokenizer")
        assert (found.folder, found.name) == (translated_folder(files_of(file)), name)
        require_known(name)
    assert name_of(str(file)) == name_of(file.name) == "tiny-llama-Q4_K_M"
    assert name_of("/there/model-Q8_0-00001-of-00003.gguf") == "model-Q8_0"
    assert name_of(str(file.parent)) == "models"
    other = file.rename(file.with_name("sha256-0a1b2c"))
    require_known(str(other))
    assert translated_folder(files_of(other)).is_dir()


def test_a_folder_is_searched_for_models_by_their_names_unless_it_has_weights_of_its_own(file):
    for name in ("._tiny-llama-Q4_K_M.gguf", "mmproj.gguf", "m-00002-of-00002.gguf"):
        file.with_name(name).touch()
    assert [path.name for path in model_files_in(file.parent)] == [file.name]
    write_converted(file.with_name("a model (1).gguf"), "llama")
    says = rf"holds 2 models: a model \(1\).gguf, {file.name}. Give the file of one"
    with pytest.raises(ConfigError, match=says):
        require_known(str(file.parent))
    ranks = file.parent / "rank-0-of-2"
    ranks.mkdir()
    for own in (ranks / "model.safetensors", file.parent / "model.safetensors"):
        own.touch()
        with pytest.raises(ModelNotFoundError):
            require_known(str(file.parent))
        own.unlink()


@for_each("name, says", [
    ("tiny-llama.gguf", r"^No file tiny-llama.gguf lies in {0}, which holds tiny-llama-Q4_K_M.gguf, b.gguf\.$"),
    ("there/tiny.gguf", r"^No file tiny.gguf was found: the folder {0}/there does not exist\.$"),
    ("empty/tiny.gguf", r"^No file tiny.gguf lies in {0}/empty, nor any other GGUF file\.$"),
])  # fmt: skip
def test_a_file_that_is_not_there_is_told_with_its_neighbours_and_no_hub_is_asked(file, monkeypatch, name, says):
    monkeypatch.setattr(model_files, "require_listed", None)
    monkeypatch.chdir(file.parent)
    (file.parent / "empty").mkdir(exist_ok=True)
    file.with_name("b.gguf").touch()
    with pytest.raises(ModelNotFoundError, match=says.format(re.escape(str(file.parent)))):
        require_known(name)


def test_a_missing_part_is_named_before_anything_is_translated(file):
    first = file.rename(file.with_name("m-00001-of-00002.gguf"))
    with pytest.raises(ConfigError, match=r"^m-00002-of-00002.gguf is missing next to m-00001-of-00002.gguf"):
        find_model(first)
    first.rename(first.with_name("m-00002-of-00002.gguf"))
    with pytest.raises(ConfigError, match=r"^m-00001-of-00002.gguf is missing next to m-00002-of-00002.gguf"):
        require_known(str(first.parent))


def test_a_model_that_names_no_tokenizer_asks_for_one(file):
    with pytest.raises(ConfigError, match=f"^The tokenizer in {file.name} can't be used: .* with tokenizer=…$"):
        find_model(file)
    with pytest.raises(ConfigError, match="tokenizer=…"):
        find_tokenizer(file)


@for_each("content, says", [
    (b"", r"^bad.gguf can't be used: it does not begin as a GGUF file does\. Download it again, or use .*\.$"),
    (b"version https://git-lfs.github.com/spec/v1\n", r"it is a Git-LFS pointer.*\. Run `git lfs pull`"),
    (gguf_bytes([("general.type", [1]), ("general.architecture", "x\x1b[31m")]), r"ture='x\\x1b\[31m' where"),
])  # fmt: skip
def test_a_file_that_is_no_model_ends_in_a_sentence_and_leaves_nothing(file, own_cache, content, says):
    bad = file.with_name("bad.gguf")
    bad.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as raised:
        find_model(bad)
    assert str(bad.parent) not in str(raised.value)
    assert not any((own_cache / "gguf").iterdir())


def test_metadata_that_contradict_themselves_or_that_no_check_foresees_end_in_a_sentence(file, in_process, monkeypatch):
    tokens = {"tokenizer.ggml.tokens": [f"{number}" for number in range(5000)]}
    for case, metadata, says in (
        ("llama", {"llama.rope.freq_base": 0.0}, "angles need one above 0"),
        ("gemma2", {"gemma2.attention.head_count": 0}, "has 0 heads"),
        ("llama", tokens, "5,000 tokens in its tokenizer"),
    ):
        write_converted(file, case, **metadata)
        assert says in (refused(file) or "")
    monkeypatch.setattr("penstock.frontend.models.gguf.config.architecture_of", lambda metadata: [][0])
    write_converted(file, "llama")
    assert (refused(file) or "").startswith(f"{file.name} can't be used: it has a value in its metadata that no")


def test_what_is_no_file_is_refused_without_waiting_for_it_and_its_name_gives_a_terminal_no_orders(file):
    os.mkfifo(file.with_name("pipe.gguf"))
    with pytest.raises(ConfigError, match="it is a pipe"):
        require_known(str(file.with_name("pipe.gguf")))
    for name, target in (("dangling.gguf", "nowhere.gguf"), ("loop.gguf", "loop.gguf")):
        file.with_name(name).symlink_to(target)
        with pytest.raises(ModelNotFoundError, match=f"^{name} is a link to a file that is not there"):
            require_known(str(file.with_name(name)))
    (bad := file.with_name("red\x1b[31m\n.gguf")).write_bytes(b"")
    with pytest.raises(ConfigError, match=r"^red\\x1b\[31m\\n.gguf can't be used"):
        find_model(bad)


def test_mutated_files_end_in_a_sentence_each(file, in_process):
    for seed in range(60):
        file.write_bytes(mutated(seed))
        said = refused(file)
        assert said is None or (said.startswith(file.name) and str(file.parent) not in said), f"seed {seed}: {said}"


@for_each("bounds, says", [
    (Bounds(memory_bytes=1 << 20, wall_seconds=600.0), "more than 1 MiB, or breaks what computes it"),
    (Bounds(wall_seconds=0.001), r"more than 0.001 s"),
])  # fmt: skip
def test_a_header_that_takes_too_much_ends_its_process_alone(tmp_path, bounds, says):
    large = tmp_path / "large.gguf"
    large.write_bytes(gguf_bytes([("tokens", [f"token {number}" for number in range(200_000)])]))
    with pytest.raises(ConfigError, match=rf"reading its header takes {says}\. Use"):
        translation.translate(GgufFiles((large,)), tmp_path, bounds)


def test_what_the_authors_recommend_is_the_usual_sampling(file, in_process):
    recommended = {"general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.top_p": 0.95}
    write_converted(file, "llama", **recommended)
    params = default_params(translated_folder(files_of(file)))
    assert (params.temperature, params.top_k, params.top_p) == (0.6, 20, 0.95)
    write_converted(file, "llama", **{"general.sampling.temp": -1.0})
    with pytest.raises(ConfigError, match=r"it recommends sampling that can't be used: temperature"):
        translated_folder(files_of(file))


def test_links_are_translated_under_their_own_names(file, tmp_path, in_process):
    """As the hub's cache has them: what they lead to is named by a digest."""
    blob = file.rename(file.with_name("0a1b2c"))
    link = tmp_path / "model.gguf"
    link.symlink_to(blob)
    assert json.loads((translated_folder(files_of(link)) / "gguf.json").read_text())["files"] == [str(link)]
    write_converted(blob, "llama", **{"llama.block_count": 0})
    with pytest.raises(ConfigError, match=r"^model.gguf can't be used: it has 0 layers"):
        translated_folder(files_of(link))
