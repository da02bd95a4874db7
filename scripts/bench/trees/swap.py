"""The same requests on two trees with too few KV blocks, one of them with `swap_space`.

The pool holds little more than one of the prompts. Three parts: prompts that nobody has seen (what saving costs), the
same again when all were evicted (what loading gains), and answers that outgrow the pool together, so that some give way
and come back.
"""

from functools import partial
from itertools import count
from typing import Any

from penstock import LLM

from ..harness import Quantization, ShapeName, answered, compare, random_model, random_weights, seconds_of

ANSWERS, ANSWER_TOKENS = 6, 96  # of the last part
BLOCK = 32


def run(
    prompts: int = 8, tokens: int = 512, swap_space: float = 4.0, quantization: Quantization = "none",
    shape: ShapeName = "0.6b", rounds: int = 3,
) -> Any:  # fmt: skip
    options = random_weights(
        quantization, block_size=BLOCK, max_model_len=tokens + BLOCK, num_gpu_blocks_override=tokens // BLOCK + 2,
        static_decode_blocks=0, enable_prefix_caching=True,
    )  # fmt: skip
    with (
        random_model(shape) as folder,
        LLM(folder, **options) as plain,
        LLM(folder, swap_space=swap_space, **options) as swapping,
    ):
        sides = {"without": Side(plain, prompts, tokens), "with": Side(swapping, prompts, tokens)}
        parts = {
            "unseen prompts": Side.unseen, "the same again": Side.again, "answers that outgrow the pool": Side.outgrown,
        }  # fmt: skip
        found = {
            name: compare(name, {label: partial(part, side) for label, side in sides.items()}, rounds, "s")
            for name, part in parts.items()
        }
        print(swapping.stats())
        return found


class Side:
    """One tree, and how often it was asked."""

    def __init__(self, llm: LLM, num_prompts: int, num_tokens: int) -> None:
        self.llm, self.num_prompts, self.num_tokens = llm, num_prompts, num_tokens
        self._salts = count()
        self._salt = 0

    def unseen(self) -> float:
        """Seconds for prompts that nobody has asked before, one after another."""
        self._salt = next(self._salts)
        return self.again()

    def again(self) -> float:
        """The same prompts once more; the pool has room for one."""
        return sum(answered(self.llm, [self._prompt(number, self.num_tokens)], 1) for number in range(self.num_prompts))

    def outgrown(self) -> float:
        """Seconds for answers that fit the pool when they begin and outgrow it together."""
        self._salt = next(self._salts)
        asked = [self._prompt(number, 48) for number in range(ANSWERS)]
        return seconds_of(lambda: answered(self.llm, asked, ANSWER_TOKENS))

    def _prompt(self, number: int, length: int) -> list[int]:
        return [self._salt + 10, number + 10, *((31 * number + place) % 4000 + 10 for place in range(length - 2))]
