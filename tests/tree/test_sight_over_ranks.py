"""A model that sees in real processes: two ranks, which each encode all pictures, give the tokens of one; and each line
of a batch is answered as it is alone.
"""

import json
from typing import Any

import pytest
from builders.seeing_model import about, animation, answering_model, as_url, data_url, noise

from penstock import LLM, SamplingParams
from penstock.frontend.cli import main

OPTIONS = {"max_model_len": 1024, "num_threads": 2, "quiet": True}
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
SIZES = [(64, 96), (96, 32), (128, 128)]


@pytest.mark.parametrize("family", ["Qwen3VL", pytest.param("Qwen3_5", marks=pytest.mark.long)])
def test_two_ranks_give_the_tokens_of_one_alone_and_in_a_batch(family, tmp_path):
    folder = answering_model(tmp_path / "model", family)
    pictures = [{"type": "image", "image": noise(number, size)} for number, size in enumerate(SIZES)]
    conversations = [about(*pictures[:count], text="Why? " * count) for count in range(4)]
    found = []
    for ranks in (1, 2):
        with LLM(folder, tensor_parallel_size=ranks, max_num_batched_tokens=37, **OPTIONS) as llm:
            outputs = llm.chat(conversations, GREEDY, use_tqdm=False)
            found.append([(output.error_msg, list(output.outputs.token_ids)) for output in outputs])
            if ranks == 1:
                unseen = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True, cache_salt="alone")
                alone = [llm.chat([each], unseen, use_tqdm=False)[0].outputs.token_ids for each in conversations]
    assert found[0] == found[1] == [(None, list(token_ids)) for token_ids in alone]
    assert len({tuple(tokens) for _, tokens in found[0]}) == len(conversations)


def part(*seeds: int) -> list[dict[str, Any]]:
    return [{"type": "image_url", "image_url": {"url": as_url(noise(seed))}} for seed in seeds]


@pytest.mark.long  # as test_pictures.py has it of a worker that computes nothing
def test_a_batch_about_pictures_is_answered_line_by_line_as_each_is_alone(tmp_path, capsys):
    model = answering_model(tmp_path / "model")
    frames = animation(*(noise(number, (64, 64)) for number in range(4)))
    video = {"type": "video_url", "video_url": {"url": data_url("image/gif", frames)}}
    broken = {"type": "image_url", "image_url": {"url": "data:image/png;base64,bm90aGluZw=="}}
    asked = [
        about(*part(1)), about(text="Hello"), about(*part(2, 3)), about(broken), about(*part(1), text="And now?"),
        about(video), about(*part(4, 1, 5)), about(*part(1)),
    ]  # fmt: skip
    written = [json.dumps({"id": number, "messages": messages}) for number, messages in enumerate(asked)]
    (tmp_path / "in.jsonl").write_text("\n".join(written))
    files = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl"), "--format", "jsonl"]
    settings = ["--max-tokens", "8", "--temperature", "0", "--max-model-len", "1024", "--num-threads", "2"]
    main(["generate", str(model), *files, *settings])
    capsys.readouterr()
    told = {each["id"]: each for each in map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())}
    assert len(told) == len(asked)
    params = SamplingParams(max_tokens=8, temperature=0)
    with LLM(model, enable_prefix_caching=False, **OPTIONS) as llm:
        for number, messages in enumerate(asked):
            [alone] = llm.chat([messages], params, use_tqdm=False)
            line, [found] = told[number], told[number]["outputs"]
            assert line.get("error_msg") == alone.error_msg, number
            assert line["usage"]["prompt_tokens"] == len(alone.prompt_token_ids), number
            assert found["token_ids"] == list(alone.outputs.token_ids), number
    assert [number for number, line in told.items() if "no format" in line.get("error_msg", "")] == [3]
