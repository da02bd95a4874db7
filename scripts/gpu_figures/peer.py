"""`transformers.generate` on the same card for the same lengths: a padded batch, decoded until its longest answer ends.

Its rate counts the tokens that were asked for. Held against what `trees.py` found in the same run.
"""

import random
import time
from collections.abc import Iterator
from functools import partial

import torch
from bench.models import SHAPES
from transformers import AutoModelForCausalLM, PreTrainedModel, Qwen3Config

from .setting import Figure, Part, Setting
from .trees import NUM_FEW, NUM_TOGETHER, Request, mixed, requests, together
from .work import Work


def parts(setting: Setting) -> Iterator[Part]:
    for number in (NUM_FEW, NUM_TOGETHER):
        yield Part(f"transformers, {together(number)}", partial(_generated, setting, number))


def _generated(setting: Setting, number: int) -> Iterator[Figure]:
    shape = SHAPES[setting.sized("0.6b", "small")]
    asked = number if not setting.is_small else 6
    lengths = mixed(asked, *setting.sized((100, 1024), (8, 24)))
    model = _model(shape, setting.device)
    _seconds(model, requests(random.Random(1), Work.of(shape), [(16, 4)] * 2))
    seconds = _seconds(model, requests(random.Random(2), Work.of(shape), lengths))
    rate = sum(answer for _, answer in lengths) / seconds
    yield Figure(f"transformers, {together(number)}", rate, "tokens/s")
    if (ours := setting.known.get(together(number))) is not None:
        yield Figure(f"penstock beside transformers, {together(number)}", ours / rate, "x")


def _model(shape: dict, device: str) -> PreTrainedModel:
    config = Qwen3Config(**shape, max_position_embeddings=4096, eos_token_id=2, bos_token_id=1)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def _seconds(model: PreTrainedModel, asked: list[Request]) -> float:
    longest = max(len(prompt) for prompt, _ in asked)
    rows = [[0] * (longest - len(prompt)) + prompt for prompt, _ in asked]
    ids = torch.tensor(rows, device=model.device)
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt, _ in asked], device=model.device)
    most = max(answer for _, answer in asked)
    start = time.perf_counter()
    with torch.inference_mode():
        made = model.generate(
            ids, attention_mask=mask, max_new_tokens=most, min_new_tokens=most, do_sample=False, pad_token_id=0
        )
    made.tolist()  # waits
    return time.perf_counter() - start
