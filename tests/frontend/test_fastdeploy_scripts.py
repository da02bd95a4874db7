"""Scripts as people write them for FastDeploy run here with another import and another model.

Each script stands alone, as a user's would: it loads a model with that engine's options, calls it in that engine's
forms, and reads every field that it promises.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from builders.warm_trees import LentTrees

from penstock import LLM, CompletionOutput, RequestMetrics, RequestOutput, SamplingParams

REASONING = """
from penstock import LLM, SamplingParams

llm = LLM(model="pocket", tensor_parallel_size=1, max_model_len=32768, enable_mm=False, reasoning_parser="ernie-45-vl")
messages = [{"role": "user", "content": [{"type": "text", "text": "What is 348 + 275?"}]}]
greedy = SamplingParams(temperature=0)

[thinking] = llm.chat(messages=messages, sampling_params=greedy, use_tqdm=False)
[direct] = llm.chat(messages=messages, sampling_params=greedy, chat_template_kwargs={"enable_thinking": False})

reasoning_text = thinking.outputs.reasoning_content
reasoning_text_as_once_spelled = thinking.outputs.resoning_content
"""

COMPLETION = """
from penstock import LLM, SamplingParams

prompts = ["User: 2 + 2?\\nAssistant: ", "Paris is the capital of"]
sampling_params = SamplingParams(temperature=0.8, top_p=0.95, max_tokens=24)
llm = LLM(
    model="pocket", max_model_len=2048, tensor_parallel_size=1, block_size=64, max_num_seqs=8,
    gpu_memory_utilization=0.9, num_gpu_blocks_override=96, max_num_batched_tokens=None, kv_cache_ratio=0.75,
    use_warmup=1, engine_worker_queue_port=8002, port=8180, metrics_port=8181, enable_mm=False,
    enable_prefix_caching=True,
)
outputs = llm.generate(prompts, sampling_params)
"""

SEEN = """
from penstock import LLM, SamplingParams
llm = LLM(model="pocket-sight", tensor_parallel_size=1, max_model_len=32768, enable_mm=True,
          limit_mm_per_prompt={"image": 100}, reasoning_parser="ernie-45-vl")

outputs = llm.chat(
    messages=[
        {"role": "user", "content": [ {"type": "image_url", "image_url": {"url": "https://example.com/shapes.png"}},
                                     {"type": "text", "text": "What shapes are there?"}]}
    ],
    sampling_params=SamplingParams(temperature=0, max_tokens=16),
    chat_template_kwargs={"enable_thinking": False})
generated_text, reasoning_text = outputs[0].outputs.text, outputs[0].outputs.reasoning_content
"""

SEEN_COMPLETION = """
import io
import requests
from PIL import Image

from penstock import LLM, SamplingParams
from penstock import ErnieBotTokenizer

PATH = "pocket-sight"
tokenizer = ErnieBotTokenizer.from_pretrained(PATH)
url = "https://example.com/shapes.png"
messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}},
                                         {"type": "text", "text": "What shapes are there?"}]}]
prompt = tokenizer.apply_chat_template(messages, tokenize=False)
images, videos = [Image.open(io.BytesIO(requests.get(url).content))], []

sampling_params = SamplingParams(temperature=0, max_tokens=16)
llm = LLM(model=PATH, tensor_parallel_size=1, max_model_len=32768, limit_mm_per_prompt={"image": 100},
          reasoning_parser="ernie-45-vl")
outputs = llm.generate(prompts={"prompt": prompt, "multimodal_data": {"image": images, "video": videos}},
                       sampling_params=sampling_params)
"""

Run = Callable[[str], dict[str, Any]]


@pytest.fixture
def without_arithmetic() -> Iterator[None]:
    """For scripts whose answers may say anything."""
    trees = LentTrees(load_format="stand-in")
    with trees.in_place():
        yield
    trees.close()


@pytest.fixture
def run() -> Iterator[Run]:
    """Executes a script and gives its names; the models that it loaded end with the test."""
    opened: list[LLM] = []

    def run(script: str) -> dict[str, Any]:
        names: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(script, "script.py", "exec"), names)
        opened.append(names["llm"])
        return names

    yield run
    for llm in opened:
        llm.close()


@pytest.fixture
def picture() -> Iterator[str]:
    """The address of one that this machine serves itself."""
    folder = Path(__file__).parents[2] / "docs" / "images"
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(folder))) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/shapes.png"
        server.shutdown()


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        """Standard error is the tested program's."""


def every_field_is_there(output: RequestOutput) -> None:
    """With its own type, under the name by which the engine's users know it."""
    assert isinstance(output.request_id, str) and isinstance(output.prompt, str)
    assert output.prompt_token_ids and all(isinstance(token, int) for token in output.prompt_token_ids)
    assert output.finished is True and output.num_cached_tokens >= 0
    assert (output.error_code, output.error_msg) == (200, None)
    answer, metrics = output.outputs, output.metrics
    assert isinstance(answer[0], CompletionOutput) and isinstance(metrics, RequestMetrics)
    assert (answer.index, answer.send_idx) == (0, 0)
    assert answer.token_ids and isinstance(answer.text, str)
    assert answer.reasoning_content is None and answer.resoning_content is None
    assert metrics.inference_start_time >= metrics.arrival_time > 1.7e9, "Unix seconds"
    for duration in ("first_token_time", "time_in_queue", "model_forward_time", "model_execute_time"):
        assert 0 <= getattr(metrics, duration) < 600, duration


def test_thoughts_are_apart_from_the_answer_and_can_be_switched_off(run):
    names = run(REASONING)
    thinking, direct = names["thinking"].outputs, names["direct"].outputs
    assert names["reasoning_text"] and "</think>" not in names["reasoning_text"] + thinking.text
    assert names["reasoning_text_as_once_spelled"] == names["reasoning_text"]
    assert direct.reasoning_content is None and direct.text
    assert names["thinking"].prompt + "<think>\n\n</think>\n\n" == names["direct"].prompt


@pytest.mark.usefixtures("without_arithmetic")
def test_a_picture_at_an_address_is_asked_about_in_a_conversation_and_in_a_prompt(run, picture):
    chat, completion = (run(re.sub(r"https://[^\"]*", picture, script)) for script in (SEEN, SEEN_COMPLETION))
    [told], [continued] = chat["outputs"], completion["outputs"]
    every_field_is_there(told)
    assert told.prompt.count("<|image_pad|>") == 1
    assert told.prompt_token_ids == continued.prompt_token_ids, "placeholders are filled alike"
    assert told.outputs.token_ids == continued.outputs.token_ids
    assert chat["generated_text"] and chat["reasoning_text"] is None


@pytest.mark.usefixtures("without_arithmetic")
def test_prompts_to_complete_with_every_option_form_and_parameter(run, capfd):
    names = run(COMPLETION)
    told = capfd.readouterr().err
    assert "total_block_num:96" in told
    assert told.count("port has no effect") == 3, "each of the ports gets one notice"
    assert [output.prompt for output in names["outputs"]] == names["prompts"], "nothing is added"
    every_field_is_there(names["outputs"][1])
    params = SamplingParams(
        presence_penalty=0.5, frequency_penalty=0.5, repetition_penalty=1.1, temperature=0.8, top_p=0.95, top_k=40,
        min_p=0.01, max_tokens=12, min_tokens=6, bad_words=["blue", "red"],
    )  # fmt: skip
    [output] = names["llm"].generate("The sky is", params, use_tqdm=False)
    assert output.error_code == 200 and 6 <= len(output.outputs.token_ids) <= 12
    assert SamplingParams(frequence_penalty=0.25).frequency_penalty == 0.25, "as it was once spelled"
