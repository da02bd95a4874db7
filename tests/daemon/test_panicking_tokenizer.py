"""A tokenizer whose library panics at one text: that request is refused alone, wherever it comes from."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders.tiny_model import tiny_model

from penstock import SamplingParams
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import RequestError

PARAMS = SamplingParams(max_tokens=2, ignore_eos=True)
# At the beginning of a text the library counts what was put in there one character too far.
PANICS = {"type": "Replace", "pattern": {"Regex": "^(?=bad)"}, "content": "x" * 1000}
CONFIG = """
[models.panics]
model = "{}"
load_format = "stand-in"
num_gpu_blocks_override = 64
quiet = true
"""


def model_with(folder: Path, **parts: Any) -> Path:
    tiny_model(folder, "llama", adds_bos=True)
    path = folder / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **parts}))
    return folder


def test_a_text_or_tokens_at_which_it_panics_are_refused(tmp_path):
    tokenizer = Tokenizer(model_with(tmp_path / "encodes", normalizer=PANICS))
    assert tokenizer.encode("good") and tokenizer.encode("a bad one")
    for call in (lambda: tokenizer.encode("bad"), lambda: tokenizer.encode_batch(["good", "bad"])):
        with pytest.raises(RequestError, match="can't be tokenized: the tokenizers library failed"):
            call()
    strips = {"type": "Strip", "content": "!", "start": 5, "stop": 5}
    tokenizer = Tokenizer(model_with(tmp_path / "decodes", decoder=strips))
    bad, good = tokenizer.token_to_id("!"), tokenizer.token_to_id("a")
    assert tokenizer.decode(good) == tokenizer.decode_token(good) == "a"
    for call in (
        lambda: tokenizer.decode(bad),
        lambda: tokenizer.decode([bad, bad]),
        lambda: tokenizer.decode_token(bad),
    ):
        with pytest.raises(RequestError, match="no text: the tokenizers library failed"):
            call()


def test_one_such_prompt_ends_alone_in_a_batch_and_over_http(start, tmp_path):
    daemon = start(CONFIG.format(model_with(tmp_path / "model", normalizer=PANICS)), "--http", "127.0.0.1:0")
    with daemon.attach("panics") as llm:
        outputs = llm.generate(["good", "bad", "a bad one", "bad too"], PARAMS, use_tqdm=False)
        assert [output.error_code for output in outputs] == [200, 400, 200, 400]
        assert "the tokenizers library failed" in outputs[1].error_msg
        [output] = llm.stream("bad", PARAMS)
        assert output.error_code == 400
        spelled = SamplingParams(max_tokens=2, bad_words=["bad"])
        assert llm.generate("good", spelled, use_tqdm=False)[0].error_code == 400
        for path, more in {"/v1/completions": {"max_tokens": 2}, "/tokenize": {}}.items():
            reply = httpx.post(
                daemon.status().http + path, json={"model": "panics", "prompt": "bad", **more}, timeout=60
            )
            assert reply.status_code == 400 and "the tokenizers library failed" in reply.text, reply.text
        assert llm.generate("good", PARAMS, use_tqdm=False)[0].error_code == 200
