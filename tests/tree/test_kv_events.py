"""KV events of a real tree, read as a router reads them."""

import msgspec
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

        wait_until(is_found, 60, "the events tell of all that was computed")
        with pytest.raises(PenstockError, match="endpoint ipc://.* can't be opened"):
            LLM(model_folder, kv_events_config=config, **OPTIONS)


@pytest.mark.long
def test_each_of_several_trees_tells_of_its_own_blocks_with_its_rank(model_folder, tmp_path):
    config = {name: f"ipc://{tmp_path}/{name}" for name in ("endpoint", "replay_endpoint")} | {"token_ids": True}
    options = {**OPTIONS, "num_threads": 2, "data_parallel_size": 2}
    with zmq.Context() as context, LLM(model_folder, kv_events_config=config, **options) as llm:
        llm.generate([PROMPT, PROMPT[::-1]], SamplingParams(max_tokens=1), use_tqdm=False)
        found = []
        for rank, suffix in enumerate(("", ".1")):
            index = Index()
            with context.socket(zmq.DEALER) as replay:
                replay.connect(config["replay_endpoint"] + suffix)

                def is_there(index: Index = index, replay: zmq.Socket = replay, rank: int = rank) -> bool:
                    replay.send_multipart([b"", bytes(8)])
                    while (frame := replay.recv_multipart())[-1]:
                        assert msgspec.msgpack.decode(frame[-1])[2] == rank
                        index.read(frame[-1])
                    return bool(index.prefix(PROMPT, 32) or index.prefix(PROMPT[::-1], 32))

                wait_until(is_there, 60, "its events tell of one prompt")
            found.append([index.prefix(prompt, 32) for prompt in (PROMPT, PROMPT[::-1])])
        assert sorted(found) == [[0, 3], [3, 0]]
