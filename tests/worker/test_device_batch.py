"""What the host knows of a step's rows goes along with them."""

import numpy
import torch

from penstock.kernels.paged import DeviceRows, PromptRows
from penstock.worker.backends.triton.device_batch import DeviceBatch
from penstock.worker.steps.slots import SlotTable
from penstock.worker.steps.step_rows import StepRows


def prompts(counts: list[int], starts: list[int]) -> PromptRows:
    table = SlotTable(len(counts), 100, [8], 16, 50, torch.device("cpu"))
    num_tokens, first = numpy.array(counts), numpy.array(starts)
    nowhere = numpy.zeros(len(counts), bool)
    rows = StepRows(numpy.arange(len(counts)), num_tokens, first, first + num_tokens, nowhere, nowhere)
    return DeviceBatch(table, rows, memory=None)._prompts()


def test_prompts_are_the_rows_of_several_tokens():
    assert prompts([1, 5, 1, 3], [40, 0, 7, 20]) == PromptRows(1, 2)
    assert prompts([2, 1], [3, 4]) == PromptRows(0, 1)
    assert prompts([1, 1, 1], [3, 4, 5]) == PromptRows(3, 0)


def test_rows_before_the_first_prompt_can_be_left_out():
    starts = torch.tensor([0, 1, 2, 7], dtype=torch.int32)
    rows = DeviceRows(starts, torch.tensor([9, 8, 5]), torch.arange(6).view(3, 2), torch.arange(7), 5, 9)
    rows.prompts = PromptRows(2, 1)
    left = rows.from_first_prompt()
    assert (left.query_starts.tolist(), left.context_lengths.tolist()) == ([2, 7], [5])
    assert left.block_tables.tolist() == [[4, 5]] and not left.may_have_answers and rows.may_have_answers
    assert left.from_first_prompt() is left
