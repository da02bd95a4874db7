"""Logits steps that a user brings: what they are given, and that a broken one stays its own request's matter."""

import sys
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from builders import sampled_rows
from builders.cases import for_each
from builders.sampled_rows import HISTORY, logits_like, sample

from penstock.protocol.parameters.sampling import SamplingParams
from penstock.worker.sampler import LogitsProcessors, ParameterTable, SamplingRows

pytestmark = pytest.mark.usefixtures("sampling_form")

VOCABULARY = 97
TOKENS = [5, 6, 7, 8]
GREEDY = SamplingParams(temperature=0)


def favour(vocab_size: int, token: int | None):
    """Adds to one token; requests that name none go without."""
    if token is None:
        return None
    if not 0 <= token < vocab_size:
        raise ValueError(f"{token} is no token")

    def step(tokens, num_prompt, logits) -> None:
        logits[token] += 1000

    return step


def always(step):
    """A processor that makes this step for every request."""
    return lambda vocab_size, given: step


def with_another_dtype(tokens, num_prompt, logits) -> None:
    logits.dtype = numpy.int32
    logits[:] = 0x7FC00000  # NaN as float32


def rows(processors: LogitsProcessors, params: list[SamplingParams]) -> SamplingRows:
    table = ParameterTable(len(params), VOCABULARY, sampled_rows.form.device, processors)
    stored = torch.zeros(len(params), HISTORY, dtype=torch.int32)
    for slot, each in enumerate(params):
        stored[slot, : len(TOKENS)] = torch.tensor(TOKENS)
        table.enter(slot, each, 3, 0, 0)
    count = len(params)
    columns = (numpy.arange(count), numpy.full(count, len(TOKENS)), numpy.full(count, 3))
    return SamplingRows(table, *columns, sampled_rows.form.given(stored))


def arguments(**given) -> SamplingParams:
    return SamplingParams(temperature=0, logits_processors_args=given)


def test_a_step_acts_on_the_requests_that_want_it_and_several_in_the_order_in_which_they_are_named():
    logits = logits_like(3, VOCABULARY)
    asked = rows(LogitsProcessors({"favour": favour}), [arguments(favour=11), GREEDY, arguments(favour=60)])
    assert sample(logits.clone(), asked).token_ids.tolist() == [11, int(logits[1].argmax()), 60]
    double = always(lambda tokens, num_prompt, logits: logits.__setitem__(slice(None), 2 * logits))
    found = logits[:1].clone()
    sample(found, rows(LogitsProcessors({"favour": favour, "double": double}), [arguments(favour=4)]))
    assert found[0, 4].item() == pytest.approx((logits[0, 4].item() + 1000) * 2)


def test_a_step_sees_prompt_answer_and_the_row_after_all_other_rules():
    seen = []

    def make(vocab_size, given):
        def step(tokens, num_prompt, logits) -> None:
            seen.append((vocab_size, given, tokens.tolist(), num_prompt, logits[9]))

        return step

    params = SamplingParams(temperature=0, logit_bias={9: 50}, logits_processors_args={"look": [1, {"a": None}]})
    logits = logits_like(1, VOCABULARY)
    sample(logits.clone(), rows(LogitsProcessors({"look": make}), [params]))
    assert seen == [(VOCABULARY, [1, {"a": None}], TOKENS, 3, logits[0, 9].item() + 50)]


@for_each("make, given, words", [
    (favour, 1000, "The logits processor 'broken' failed: ValueError: 1000 is no token"),
    (always(lambda tokens, num_prompt, logits: logits.__setitem__(10**6, 0)), None, "'broken' failed: IndexError"),
    (always(lambda tokens, num_prompt, logits: logits[:-1]), None, "ndarray of shape (96,) and float32; a step"),
    (always(lambda tokens, num_prompt, logits: logits > 0), None, "and bool; a step changes its logits in place"),
    (always(lambda tokens, num_prompt, logits: torch.zeros(2, VOCABULARY)), None, "Tensor of shape (2, 97)"),
    (always(lambda tokens, num_prompt, logits: torch.zeros(VOCABULARY) > 0), None, "bool"),
    (always(lambda tokens, num_prompt, logits: logits * 1j), None, "complex64"),
    (always(lambda tokens, num_prompt, logits: ["a"] * VOCABULARY), None, "list of shape (97,) and <U1"),
    (always(lambda tokens, num_prompt, logits: 0), None, "int of shape ()"),
    (always(lambda tokens, num_prompt, logits: [[1], [2, 3]]), None, "inhomogeneous"),
    (always(lambda tokens, num_prompt, logits: logits.__setitem__(3, numpy.nan)), None, "NaN or infinity"),
    (always(lambda tokens, num_prompt, logits: [float("inf")] * VOCABULARY), None, "NaN or infinity"),
    (lambda vocab_size, given: 5, None, "TypeError"),
    (always(lambda tokens, num_prompt, logits: tokens.__setitem__(0, 1)), None, "read-only"),
    (always(lambda tokens, num_prompt, logits: sys.exit(3)), None, "'broken' failed: SystemExit: 3"),
    (always(with_another_dtype), None, "NaN or infinity"),
])  # fmt: skip
def test_a_step_that_raises_fails_its_own_row_with_its_error(make, given, words):
    logits = logits_like(2, VOCABULARY)

    def only_where_asked(vocab_size, given):
        return None if given == "off" else make(vocab_size, given)

    asked = rows(LogitsProcessors({"broken": only_where_asked}), [arguments(broken="off"), arguments(broken=given)])
    found = sample(logits.clone(), asked)
    assert found.faults.tolist() == [0, 2] and found.token_ids[0] == logits[0].argmax()
    assert list(asked.errors) == [1] and words in asked.errors[1]
    ban = always(lambda tokens, num_prompt, logits: logits.fill(-numpy.inf))  # it leaves nothing to choose from
    assert sample(logits[:1].clone(), rows(LogitsProcessors({"ban": ban}), [GREEDY])).faults.tolist() == [2]


# Steps, with the parameters of which they want tensors. `look` notes what they get.
FORMS = {
    "def step(tokens, num_prompt, logits): look(tokens, logits)": "",
    "def step(tokens: numpy.ndarray, num_prompt: int, logits: NDArray[numpy.float32]): look(tokens, logits)": "",
    "def step(tokens: torch.Tensor, num_prompt: int, logits: torch.Tensor) -> Missing: look(tokens, logits)": "tl",
    "def step(tokens, num_prompt, logits: 'torch.Tensor'): look(tokens, logits)": "tl",
    "def step(tokens: 'Absent.Tensor', num_prompt, logits): look(tokens, logits)": "tl",
    "def step(tokens, num_prompt, logits: Optional[torch.Tensor] = None): look(tokens, logits)": "tl",
    "def step(tokens, num_prompt, logits: Optional['torch.Tensor']): look(tokens, logits)": "tl",
    "def step(tokens, num_prompt, logits: Row): look(tokens, logits)": "tl",
    "def step(tokens: list[int], num_prompt, logits: torch.FloatTensor | None): look(tokens, logits)": "l",
    "def step(tokens: torch.Tensor, num_prompt, logits: numpy.ndarray): look(tokens, logits)": "t",
    "def step(*row: torch.Tensor): look(row[0], row[2])": "tl",
    "def step(tokens, num_prompt, logits): look(tokens, logits)\nstep.takes_tensors = True": "tl",
    "def step(tokens, num_prompt, logits: torch.Tensor): look(tokens, logits)\nstep.takes_tensors = False": "",
    """class Step:
    def __call__(self, tokens, num_prompt, logits: torch.Tensor): look(tokens, logits)
step = Step()""": "tl",
    """class Step:
    takes_tensors = True
    def __call__(self, *row): look(row[0], row[2])
    def bound(self, tokens, num_prompt, logits): look(tokens, logits)
step = Step().bound""": "tl",
    """class Step:
    @staticmethod
    def free(tokens, num_prompt, logits: torch.Tensor): look(tokens, logits)
step = Step.free""": "tl",
    """def named(own: torch.Tensor, tokens, num_prompt, logits): look(tokens, logits)
step = partial(named, 1)""": "",
    """def named(own, tokens, num_prompt, logits: torch.Tensor, *, other: int = 2): look(tokens, logits)
step = partial(named, 1, other=3)""": "tl",
    """def named(tokens, num_prompt, logits): look(tokens, logits)
named.takes_tensors = True
step = partial(partial(named))""": "tl",
}


def seen_by(step: str, header: str, tensors: Any) -> str:
    """Which of `tokens` and `logits` a step gets as tensors; it has changed the row as an array's would be."""
    found: list[str] = []

    def look(tokens: Any, logits: Any) -> None:
        found.append("t" * isinstance(tokens, torch.Tensor) + "l" * isinstance(logits, torch.Tensor))
        assert tokens.tolist() == TOKENS
        logits[60] = 1000

    names = {"look": look, "torch": tensors, "numpy": numpy, "Missing": None, "Row": torch.Tensor}
    exec(f"{header}\n{step}", names)
    logits = logits_like(1, VOCABULARY)
    asked = rows(LogitsProcessors({"look": always(names["step"])}), [GREEDY])
    assert sample(logits, asked).token_ids.tolist() == [60], asked.errors
    return found[0]


@for_each("step", FORMS)
def test_a_step_that_asks_for_tensors_gets_them(step):
    imports = "from functools import partial\nfrom typing import Optional\nfrom numpy.typing import NDArray"
    later = "from __future__ import annotations"
    assert seen_by(step, imports, torch) == FORMS[step]
    assert seen_by(step, f"{later}\n{imports}", torch) == FORMS[step]
    assert seen_by(step, f"{later}\n{imports}", None) == FORMS[step]  # imported for type checkers only


def test_a_processor_asks_for_the_steps_that_it_makes_and_a_history_stays_as_it_is():
    def make(vocab_size: int, given: Any) -> Callable[..., None]:
        def step(tokens, num_prompt, logits) -> None:
            logits[tokens.unique()] += 1000
            tokens.fill_(0)

        return step

    make.takes_tensors = True
    asked = rows(LogitsProcessors({"look": make}), [GREEDY])
    assert sample(logits_like(1, VOCABULARY), asked).token_ids[0] in TOKENS
    assert asked.history(numpy.array([0]), len(TOKENS)).tolist() == [TOKENS]


@for_each(
    "form", [numpy.asarray, list, torch.tensor, lambda row: torch.tensor(row).bfloat16(), numpy.float64, numpy.intp]
)
def test_a_step_may_return_its_row_in_any_form(form):
    row = [0] * 7 + [3] + [-1] * (VOCABULARY - 8)
    returned = always(lambda tokens, num_prompt, logits: form(row))
    found = logits_like(2, VOCABULARY)
    asked = rows(
        LogitsProcessors({"change": lambda size, given: given and returned(size, given)}), [arguments(change=1), GREEDY]
    )
    likeliest = int(found[1].argmax())
    assert sample(found, asked).token_ids.tolist() == [7, likeliest], asked.errors
    assert found[0].tolist() == row


def test_a_faulty_row_of_the_model_is_not_said_to_be_a_processors():
    logits = logits_like(1, VOCABULARY)
    logits[0, 4] = float("nan")
    asked = rows(LogitsProcessors({"favour": favour}), [arguments(favour=3)])
    assert sample(logits, asked).faults.tolist() == [1] and not asked.errors
