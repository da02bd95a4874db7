"""KV events of a real tree, read as a router reads them."""

import pytest
import zmq
from builders.kv_router import Index
from builders.watching import wait_until

from penstock import LLM, SamplingParams
from penstock.protocol.errors import PenstockError

OPTIONS = {"load_format": "stand-in", "max_model_len": 512, "num_gpu_blocks_override": 64, "quiet": True}
PROMPT = [token % 50 for token in range(100)]


def test_a_router_that_asks_a_tree_for_its_events_finds_what_was_computed(model_folder, tmp_path):
    addresses = {name: f"ipc://{tmp_path}/{name}" for name in ("endpoint", "replay_endpoint")}
    config = {**addresses, "enable_kv_cache_events": True, "publisher": "zmq", "token_ids": True}
    with zmq.Context() as context, LLM(model_folder, kv_events_config=config, **OPTIONS) as llm:
        [output] = llm.generate([PROMPT], SamplingParams(max_tokens=40, ignore_eos=True), use_tqdm=False)
        whole = [*PROMPT, *output.outputs.token_ids]

        def is_found() -> bool:
            index = Index()
            with context.socket(zmq.DEALER) as replay:
                replay.connect(addresses["replay_endpoint"])
                replay.send_multipart([b"", bytes(8)])
                while (frame := replay.recv_multipart())[-1]:
                    index.read(frame[-1])
            return index.prefix(whole, 32) == (len(whole) - 1) // 32

        wait_until(is_found, "the events tell of all that was computed")
        with pytest.raises(PenstockError, match="endpoint ipc://.* can't be opened"):
            LLM(model_folder, kv_events_config=config, **OPTIONS)
    assert list(tmp_path.iterdir()) == [], "its sockets leave no file"
