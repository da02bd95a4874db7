"""Prefixes kept on disk by real trees: found after a restart with the same bits, and only where they belong."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from builders.cases import for_each
from builders.seeing_model import answering_model, noise
from builders.tiny_model import tiny_model
from builders.watching import wait_until

from penstock import LLM, ConfigError, EngineDeadError, SamplingParams

OPTIONS = {"max_model_len": 512, "block_size": 16, "kv_cache_memory": "16MiB", "num_threads": 2, "quiet": True}
PROMPT = [(7 * place) % 90 + 5 for place in range(300)]
SEEING = {**OPTIONS, "mm_cache": "4MiB"}
SECONDS = 60
# A model and options: each format and kind of layer whose memory is kept.
TREES = {
    "windows, uint4": ("gemma2", {"kv_cache_dtype": "uint4"}),
    "states": ("qwen3_next", {}),
    "latents": ("deepseek_v3", {"kv_cache_dtype": "int8"}),
    "two ranks, int8": ("qwen3", {"tensor_parallel_size": 2, "kv_cache_dtype": "int8", "swap_space": 0.01}),
}
# Tests of the worker have each kind of memory; here one of blocks and one of states are enough.
RARER = ("windows, uint4", "latents")


class Answer:
    """All that an answer says, and how much of its prompt was found."""

    def __init__(self, llm: LLM, **params) -> None:
        wanted = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=3, **params)
        [output] = llm.generate([PROMPT], wanted, use_tqdm=False)
        assert output.error_code == 200, output.error_msg
        self.said = output.outputs.token_ids, repr(output.outputs.logprobs)
        self.num_cached = output.num_cached_tokens


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.glob("*/*.kv"))


def from_disk(llm: LLM, **params) -> Answer:
    """An answer whose prompt the disk has. A machine at work may be so late that the tree computes it meanwhile."""
    answer, num_blocks = Answer(llm, **params), 288 // OPTIONS["block_size"]
    wait_until(lambda: llm.stats().fetched_blocks >= num_blocks, "its blocks come", SECONDS)
    return answer


def wait_for_files(llm: LLM) -> None:
    """Until nothing is left to be written: what was computed last is written last."""
    wait_until(lambda: llm.stats().stored_blocks > 0, "blocks are written", SECONDS)
    wait_until(lambda: llm.stats().free_kv_bytes == llm.stats().kv_bytes, "all are written", SECONDS)


@pytest.mark.parametrize("tree", [pytest.param(tree, marks=[pytest.mark.long] * (tree in RARER)) for tree in TREES])
def test_a_restarted_tree_says_the_same_from_disk_and_computes_what_is_damaged_there(tree, tmp_path):
    family, options = TREES[tree]
    model, folder = tiny_model(tmp_path / "model", family), tmp_path / "kept"
    options = {**OPTIONS, **options, "prefix_cache_dir": folder}
    with LLM(model, **options) as llm:
        cold = Answer(llm)
        salted = Answer(llm, cache_salt="a")
        wait_for_files(llm)
    assert cold.num_cached == salted.num_cached == 0 and salted.said == cold.said
    assert {stat.S_IMODE(path.stat().st_mode) for path in files_in(folder)} == {0o600}
    assert {stat.S_IMODE(path.parent.stat().st_mode) for path in files_in(folder)} == {0o700}
    with LLM(model, **options) as llm:
        assert Answer(llm, cache_salt="b").num_cached == 0
        assert from_disk(llm).said == cold.said
        for path in files_in(folder):
            flip(path)
        damaged = Answer(llm, cache_salt="a")  # which only the disk has
    assert damaged.num_cached < 288 and damaged.said == cold.said


def flip(path: Path) -> None:
    """Change a bit of the first block."""
    octets = bytearray(path.read_bytes())
    octets[4096 + 5] ^= 1
    path.write_bytes(octets)


def test_a_restarted_tree_answers_about_a_picture_without_encoding_it_and_encodes_it_if_its_rows_are_damaged(tmp_path):
    model, options = answering_model(tmp_path / "model"), {**SEEING, "prefix_cache_dir": tmp_path / "kept"}
    with LLM(model, **options) as llm:
        cold = [about_picture(llm, text) for text in ("What is it?", "Which colour?")]
        stats = llm.stats()
        assert (stats.encoded_media, stats.fetched_media) == (1, 0)
        wait_until(lambda: llm.stats().kept_media == 1, "its rows are written", SECONDS)
    with LLM(model, **options) as llm:
        assert [about_picture(llm, text) for text in ("What is it?", "Which colour?")] == cold
        stats = llm.stats()
        assert (stats.encoded_media, stats.fetched_media, stats.kept_media) == (0, 1, 1)
        salted = about_picture(llm, "What is it?", cache_salt="a")
        assert salted == cold[0] and llm.stats().encoded_media == 1
        wait_until(lambda: llm.stats().kept_media == 2, "they are written for the salt", SECONDS)
    assert {stat.S_IMODE(path.stat().st_mode) for path in files_in(tmp_path / "kept")} == {0o600}
    for path in files_in(tmp_path / "kept"):
        flip(path)
    with LLM(model, **options) as llm:
        assert about_picture(llm, "What is it?") == cold[0]
        stats = llm.stats()
        assert (stats.encoded_media, stats.fetched_media) == (1, 0)


def about_picture(llm: LLM, text: str, **params) -> str:
    return said_about(llm, [question(text)], **params)[0]


def question(text: str, picture: int = 1) -> list[dict]:
    """A conversation about a picture, which stands behind the text."""
    shown = {"type": "image", "image": noise(picture, (256, 224))}
    return [{"role": "user", "content": [{"type": "text", "text": text}, shown]}]


def said_about(llm: LLM, conversations: list[list[dict]], **params) -> list[str]:
    wanted = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=3, **params)
    outputs = llm.chat(conversations, wanted, use_tqdm=False)
    assert all(output.error_code == 200 for output in outputs)
    return [f"{output.outputs.token_ids} {output.outputs.logprobs}" for output in outputs]


def test_another_model_or_adapter_or_number_format_finds_nothing(model_folder, adapters, tmp_path):
    options = {**OPTIONS, "prefix_cache_dir": tmp_path / "kept", "enable_lora": True, "max_lora_rank": 16}
    with LLM(model_folder, **options) as llm:
        llm.load_lora("one", adapters["first"])
        said = Answer(llm, lora_name="one").said
        wait_for_files(llm)
    with LLM(model_folder, **options) as llm:
        llm.load_lora("one", adapters["second"])
        llm.load_lora("other", adapters["first"])
        assert [Answer(llm, lora_name=name).num_cached for name in (None, "one", "other")] == [0, 0, 0]
        wait_for_files(llm)
        llm.unload_lora("one")
        llm.load_lora("one", adapters["first"])
        assert from_disk(llm, lora_name="one").said == said, "the same files under the same name"
    for model, more in (
        (tiny_model(tmp_path / "model", "qwen3", seed=1), {}),
        (model_folder, {"kv_cache_dtype": "bf16"}),
    ):
        with LLM(model, **options, **more) as llm:
            assert Answer(llm).num_cached == 0


@pytest.mark.long
@for_each("has_pictures", [False, True], ids=["text", "pictures"])
def test_twenty_kills_while_blocks_and_rows_are_written_leave_no_wrong_answer(has_pictures, tmp_path, monkeypatch):
    model = answering_model(tmp_path / "model") if has_pictures else tiny_model(tmp_path / "model", "qwen3")
    plain = SEEING if has_pictures else OPTIONS
    size = "400KiB" if has_pictures else "4MiB"  # so little that each run has to write something again
    options = {**plain, "prefix_cache_dir": tmp_path / "kept", "prefix_cache_size": size}
    say = about_pictures if has_pictures else about_texts
    with LLM(model, **plain) as llm:
        expected = say(llm)
    num_deaths = num_found = 0
    for number in range(20):
        monkeypatch.setenv("PENSTOCK_FAULTS", f"worker.store=die@{3 + 7 * number % 30}")
        with suppress(EngineDeadError), LLM(model, **options) as llm:
            assert say(llm) == expected
            num_found += llm.stats().fetched_media if has_pictures else llm.stats().fetched_blocks
            wait_until(lambda: llm.stats().free_kv_bytes == llm.stats().kv_bytes, "all are written", SECONDS)
        num_deaths += len(list(tmp_path.glob("kept/*/*.writing"))) > 0
    assert num_deaths > 5 and num_found > 0


def about_texts(llm: LLM) -> list[str]:
    asked = [[number, *PROMPT[: 200 + 9 * number]] for number in range(8)]
    greedy = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, logprobs=1)
    outputs = llm.generate(asked, greedy, use_tqdm=False)
    return [f"{output.outputs.token_ids} {output.outputs.logprobs}" for output in outputs]


def about_pictures(llm: LLM) -> list[str]:
    """What is said about some pictures, behind texts that are long enough to be kept."""
    asked = [(f"{number} " + "What is it? " * 20, number % 4) for number in range(8)]
    return said_about(llm, [question(*each) for each in asked])


def test_options_that_contradict_it_or_a_folder_of_somebody_else_are_refused(model_folder, tmp_path):
    (tmp_path / "diary.txt").write_text("mine")
    for options, words in (
        ({"prefix_cache_size": "1GiB", "enable_prefix_caching": False}, "enable_prefix_caching"),
        ({"prefix_cache_dir": tmp_path / "kept", "record": tmp_path / "record"}, "record"),
        ({"prefix_cache_dir": ""}, "prefix_cache_dir='': must be a path"),
        ({"prefix_cache_dir": tmp_path}, "aren't Penstock's"),
        ({"prefix_cache_dir": tmp_path / "kept", "prefix_cache_size": 100}, "holds no block"),
    ):
        with pytest.raises(ConfigError, match=words):
            LLM(model_folder, **OPTIONS, **options)
    assert os.listdir(tmp_path / "kept") == [".penstock"]
