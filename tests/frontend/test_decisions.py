"""Decisions as text: where an answer begins, and what labels of several tokens make together."""

import math

from penstock.frontend.parsing.families import REASONING
from penstock.frontend.pooling.decide import LabelTree, without_thought


def test_an_answer_begins_behind_an_empty_thought():
    qwen, channels = REASONING["qwen3"], REASONING["gpt-oss"]
    assert without_thought("<|im_start|>assistant\n", None) == ""
    assert without_thought("<|im_start|>assistant\n<think>\n\n</think>\n\n", qwen) == ""
    assert without_thought("<|im_start|>assistant\n<think>\n", qwen) == "\n</think>\n\n"
    assert without_thought("<|im_start|>assistant\n", qwen) == "<think>\n\n</think>\n\n"
    assert without_thought("<|start|>assistant", channels) == "<|channel|>final<|message|>"


def test_a_label_of_several_tokens_has_their_joint_probability_in_each_spelling():
    tree = LabelTree([[(1, 2), (9,)], [(1, 3)]])
    assert tree.nodes == {(): [1, 9], (1,): [2, 3]}
    first, second = tree.logprobs([[math.log(0.5), math.log(0.1)], [math.log(0.2), math.log(0.4)]])
    assert abs(math.exp(first) - (0.5 * 0.2 + 0.1)) < 1e-12
    assert abs(math.exp(second) - 0.5 * 0.4) < 1e-12
