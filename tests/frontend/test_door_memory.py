"""The door keeps nothing of the requests that it has let in: what they bring is theirs, and gone with them."""

import gc
import tracemalloc

from builders.cases import for_each
from builders.door import door_of_pocket

from penstock import SamplingParams
from penstock.protocol.parameters.guided import GuidedDecodingParams

SCHEMA = {"enum": [f"{n:07}" for n in range(10_000)]}
PARAMS = {
    "schemas": lambda number: {"guided_decoding": GuidedDecodingParams(json=SCHEMA)},
    "bad words": lambda number: {"bad_words": [f"{n:x} {number}" for n in range(1000)]},
    "ids of bad words": lambda number: {"bad_words_ids": [[n, number, 5] * 10 for n in range(1000)]},
    "ids of one bad word": lambda number: {"bad_words_ids": [[5] * 100_000]},
    "stop ids": lambda number: {"stop_token_ids": [5] * 100_000},
    "biases": lambda number: {"logit_bias": dict.fromkeys(range(1000), number / 100)},
}  # fmt: skip


@for_each("kind", PARAMS)
def test_nothing_is_kept_of_requests_of_many_clients(kind):
    door = door_of_pocket()
    tracemalloc.start()
    try:
        for number in range(3):
            asked = list(door.parse(["a", "b"], SamplingParams(**PARAMS[kind](number))))
            door.of(str(number)).admit(asked, notify=lambda request: None)
            del asked
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()


def test_what_is_wrong_with_shared_parameters_is_told_to_each():
    door, wrong = door_of_pocket(), SamplingParams(stop_token_ids=[10**6])
    pending = door.admit(list(door.parse(["a", "b", "c"], wrong)), lambda request: None)
    assert all("not in the vocabulary" in one.take().error_msg for one in pending)
