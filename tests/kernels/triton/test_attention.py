"""Attention on a GPU, in Triton's interpreter: right in every format, and free of company where it promises that.

Also of prompts with pictures, whose tokens see one another.
"""

from builders import interpreted  # noqa: F401  isort: skip

import random
from itertools import product

import pytest
import torch
from builders.cases import for_each
from builders.operation_examples.attention import Form, Requests
from torch import Tensor

from penstock.kernels.paged import KV_DTYPES, DeviceRows
from penstock.kernels.reference.paged_attention import attention_paged, attention_paged_invariant
from penstock.kernels.triton import arrival
from penstock.kernels.triton.attention import paged, shape

FORMS = {"fast": attention_paged, "invariant": attention_paged_invariant}
# Allowed errors as shares of the output's norm, against the formula on the stored numbers.
TOLERANCES = {"fp32": 1e-6, "fp16": 1e-3, "bf16": 6e-3, "int8": 6e-3}
QUICK_OR_LONG = ["bf16", *(pytest.param(kind, marks=pytest.mark.long) for kind in KV_DTYPES if kind != "bf16")]

Chunks = list[tuple[int, int, int]]  # (request, first, end)
Pictures = list[tuple[int, int]]  # (first, end)


def step_of(requests: Requests, chunks: Chunks, pictures: list[Pictures] | None, **spare: int):
    """The queries and rows of these chunks, of requests with such pictures each."""
    query, rows = requests.step(chunks, **spare)
    if pictures:
        ends = []
        for request, first, end in chunks:
            of_request = torch.arange(1, requests.lengths[request] + 1)
            for start, stop in pictures[request]:
                of_request[start:stop] = stop
            ends.append(of_request[first:end])
        rows.seen_ends = torch.cat(ends)
    return query, rows


def attended(
    requests: Requests, chunks: Chunks, form: str = "fast", pictures: list[Pictures] | None = None,
    written: list[int] | None = None, **spare: int,
) -> Tensor:  # fmt: skip
    """The kernel's output for the step's tokens; memory holds only the numbers that the step may read."""
    query, rows = step_of(requests, chunks, pictures, **spare)
    ends = [max((end for at, _, end in chunks if at == number), default=0) for number in range(len(requests.lengths))]
    scale, window = requests.form.head_dim**-0.5, requests.form.window
    given = (query, requests.memory(written or ends), rows, scale, window, requests.form.sinks)
    return FORMS[form].versions["triton"](*given)[: sum(end - first for _, first, end in chunks)]


def assert_right(
    requests: Requests, chunks: Chunks, form: str = "fast", pictures: list[Pictures] | None = None, **spare: int
) -> None:
    found = attended(requests, chunks, form, pictures, **spare)
    query, rows = step_of(requests, chunks, pictures)
    scale, window = requests.form.head_dim**-0.5, requests.form.window
    expected = attention_paged.reference(query, requests.memory(), rows, scale, window, requests.form.sinks)
    error = ((found - expected).norm() / expected.norm()).item()
    assert error <= TOLERANCES[requests.form.kind], f"off by {error:.1e} of the output's norm: {chunks}, {pictures}"


# Forms, lengths of requests, and the chunks of steps.
_WINDOWED = [[(0, 329, 330), (1, 39, 40)], [(0, 312, 330), (1, 38, 40)]]
CASES = [
    *(
        (Form(kind, *sizes), [37, 90], [[(0, 36, 37), (1, 89, 90)], [(0, 35, 37), (1, 82, 90)]])
        for kind in ("bf16", "int8")
        for sizes in ((1, 1, 64, 16), (7, 1, 96, 32), (16, 2, 128, 64), (2, 1, 256, 128))
    ),
    *((Form("bf16", 2, 1, window=window), [330, 40], _WINDOWED) for window in (1, 20, 280)),
    *((Form(kind, 6, 2, 32, has_sinks=True), [330, 40], _WINDOWED) for kind in KV_DTYPES),
    (Form("fp32", 2, 1, 16), [600, 100], [[(0, 599, 600), (1, 99, 100)]]),  # a context that is split
    # More splits than are read at once.
    *(
        (Form("bf16", 2, 1, 128, window=window), [2600, 300], [[(0, 2599, 2600), (1, 299, 300)]])
        for window in (None, 1300)
    ),
]


SOME = [(Form("bf16", 3, 1, 16, window=280, has_sinks=True), [330, 40], _WINDOWED)]


@pytest.mark.parametrize("cases", [SOME, pytest.param(CASES, marks=pytest.mark.long)], ids=["some", "all"])
@for_each("form", FORMS)
def test_answers_and_prompts_attend_rightly(form: str, cases: list[tuple[Form, list[int], list[Chunks]]]) -> None:
    for asked, lengths, steps in cases:
        for chunks in steps:
            assert_right(Requests(asked, lengths), chunks, form)
    assert not arrival.counters(torch.device("cpu")).any(), "the next launch begins to count where this one ended"


@pytest.mark.long
@for_each("form", FORMS)
def test_a_step_of_more_tiles_than_can_be_counted_is_not_split(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(Form("bf16", 2, 1, 32), [600, 300])
    chunks = [(0, 599, 600), (1, 299, 300)]
    split = attended(requests, chunks, form)
    monkeypatch.setattr(paged, "MOST", 1)
    assert_right(requests, chunks, form)
    assert form == "fast" or torch.equal(attended(requests, chunks, form), split)


def test_there_may_be_room_to_spare() -> None:
    requests = Requests(Form("bf16", 2, 1, 32), [41, 270])
    assert_right(requests, [(0, 40, 41), (1, 269, 270)], spare_rows=2, spare_tokens=2)
    assert_right(requests, [(0, 30, 41), (1, 269, 270)], spare_rows=2, spare_tokens=5)


@pytest.mark.long
@for_each("kind", KV_DTYPES)
def test_what_is_not_finite_in_one_row_reaches_no_other(kind: str) -> None:
    requests = Requests(Form(kind, 2, 1), [40, 41])
    for chunks in ([(0, 39, 40), (1, 40, 41)], [(0, 20, 40), (1, 20, 41)]):
        found = attended(requests, chunks, written=[7, 41])  # the first request misses most of its tokens
        count = chunks[0][2] - chunks[0][1]
        assert found[:count].isnan().any(-1).all() and not found[count:].isnan().any()


@pytest.mark.parametrize("kind", QUICK_OR_LONG)
def test_a_token_has_the_same_bits_alone_in_company_and_however_its_prompt_is_chunked(kind: str) -> None:
    requests = Requests(Form(kind, 3, 1, 32), [24, 13])
    whole = attended(requests, [(0, 0, 24)], "invariant")
    chunks = [(0, 0, 9), (0, 9, 24)]
    chunked = [attended(requests, [chunk, (1, 8, 13)], "invariant")[: chunk[2] - chunk[1]] for chunk in chunks]
    assert torch.equal(torch.cat(chunked), whole)
    for position in (10, 23):
        alone = attended(requests, [(0, position, position + 1)], "invariant")
        assert torch.equal(alone[0], whole[position]), position


@pytest.mark.long
def test_a_token_has_the_same_bits_where_its_context_is_split_and_where_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = Requests(Form("bf16", 2, 1, 32, window=400, has_sinks=True), [530, 300])
    prompt = attended(requests, [(0, 490, 530), (1, 299, 300)], "invariant")
    answers = [attended(requests, [(0, 529, 530)], "invariant"), attended(requests, [(1, 298, 300)], "invariant")[1:]]
    assert torch.equal(torch.cat(answers), prompt[-2:])
    # So it is where several queries of a row, as of an answer with drafts, take more than one tile.
    drafts = Requests(Form("bf16", 8, 1, 32), [530]), [(0, 522, 530)], "invariant"
    split = attended(*drafts)
    monkeypatch.setattr(shape, "few_programs", lambda: 0)
    assert torch.equal(attended(*drafts), split)


@pytest.mark.long
def test_in_the_fast_form_too_a_row_has_the_same_bits_whatever_stands_in_the_others() -> None:
    requests = Requests(Form("bf16", 2, 1), [300, 50, 33])
    prompt, answer = (1, 20, 50), (0, 299, 300)
    assert torch.equal(attended(requests, [answer, prompt])[:1], attended(requests, [answer, (2, 32, 33)])[:1])
    assert torch.equal(attended(requests, [prompt, answer])[:30], attended(requests, [prompt, (2, 0, 33)])[:30])


@pytest.mark.parametrize("kind", QUICK_OR_LONG)
def test_what_answers_are_tuned_on_is_a_step_of_answers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over memory of zeros, so that every output is 0, and none is missing."""
    monkeypatch.setattr(paged, "_TRIAL_CONTEXT", 300)
    monkeypatch.setattr(paged, "_TRIAL_ROWS", 2)
    requests = Requests(Form(kind, 2, 1), [5])
    query, _ = requests.step([(0, 4, 5)])
    tried, memory, rows = paged._trial_step(query, requests.memory())
    found = FORMS["fast"].versions["triton"](tried + 1, memory, rows, 0.125, None)
    assert found.shape == (2, 2, 64) and torch.equal(found, torch.zeros_like(found))


def test_a_row_alone_has_a_program_for_each_multiprocessor_and_company_moves_no_border() -> None:
    for num_heads in (1, 2, 4, 8, 16, 32, 40):
        assert 120 <= shape.most_splits(num_heads) * num_heads <= 264
        borders = set()
        for count, queries in ((1, 1), (300, 1), (1, 3), (4, 90)):
            rows = DeviceRows(*(torch.empty(count * queries) for _ in range(4)), queries, 4096)
            tiles = shape.tiles_of_invariant("bf16", 4, 32, rows, num_heads)
            borders |= {(each.positions, each.splits_at_most, each.split) for each in tiles}
        assert len(borders) == 1, num_heads


@for_each("form", ["attention_by_shape", "attention_of_one_shape"])
@for_each(
    "chunks, passes",
    [([(0, 0, 40), (1, 0, 18)], 1), ([(0, 39, 40), (1, 17, 18)], 1), ([(0, 0, 40), (1, 17, 18)], 2), ([(0, 0, 40)], 1)],
    ids=["prompts", "answers", "both", "one prompt"],
)
def test_a_step_launches_no_pass_for_rows_that_are_not_there(form, chunks, passes, monkeypatch):
    launched, launch = [], paged._launch
    monkeypatch.setattr(paged, "_launch", lambda *given: launched.append(given) or launch(*given))
    requests = Requests(Form("bf16", 2, 1, 32), [40, 18])
    query, rows = requests.step(chunks)
    found = getattr(paged, form)(query, requests.memory(), rows, 0.125, None)
    expected = attention_paged.reference(query, requests.memory(), rows, 0.125, None)
    assert (found - expected).norm() < 8e-3 * expected.norm()
    assert len(launched) == passes


def drawn(chance: random.Random, length: int) -> Pictures:
    """Pictures of a request, side by side or with text between them."""
    found, at = [], chance.randrange(4)
    while at < length:
        end = min(at + chance.choice((1, 2, 9, 30, 70)), length)
        found.append((at, end))
        at = end + chance.choice((0, 1, 20))
    return found


def cut(chance: random.Random, length: int, pictures: Pictures) -> list[tuple[int, int]]:
    """A prompt in chunks that have a picture whole or not at all."""
    inner = {place for start, stop in pictures for place in range(start + 1, stop)}
    places = [place for place in range(1, length) if place not in inner and chance.random() < 0.1]
    return list(zip([0, *places], [*places, length], strict=True))


@pytest.mark.parametrize("kind", QUICK_OR_LONG)
def test_random_pictures_are_seen_whole(kind: str) -> None:
    for form, seed in product(FORMS, range(2 if kind == "bf16" else 4)):
        chance = random.Random(seed)
        lengths = [chance.randint(1, 90) for _ in range(3)]
        window = chance.choice((None, 1, 7, 40))
        requests = Requests(Form(kind, chance.choice((1, 4)), 1, 32, window=window, has_sinks=seed % 2 > 0), lengths)
        pictures = [drawn(chance, length) for length in lengths]
        of_requests = enumerate(zip(lengths, pictures, strict=True))
        chunks = [(number, *chance.choice(cut(chance, *of_request))) for number, of_request in of_requests]
        assert_right(requests, chunks, form, pictures)


@for_each("form", FORMS)
def test_a_picture_may_lie_across_the_end_of_a_split_and_answers_stand_beside_it(form: str) -> None:
    requests = Requests(Form("bf16", 2, 1, 16, window=300), [560, 330, 50])
    pictures = [[(240, 270), (500, 540)], [], [(3, 12)]]
    assert_right(requests, [(0, 235, 275), (1, 329, 330), (2, 0, 20)], form, pictures)
    assert_right(requests, [(0, 495, 545), (1, 329, 330)], form, pictures)


@pytest.mark.parametrize("kind", QUICK_OR_LONG)
def test_a_token_has_the_same_bits_with_pictures_in_company_and_however_its_prompt_is_chunked(kind: str) -> None:
    """Behind a picture, too, in a step that has none of it; and within one whose first part was found in the cache."""
    for seed, length in ((0, 60), (1, 270)):
        chance = random.Random(seed)
        requests = Requests(Form(kind, 3 - 2 * seed, 1, 16, window=chance.choice((None, 50))), [length, 40])
        pictures = [drawn(chance, length), [(5, 30)]]
        whole = attended(requests, [(0, 0, length)], "invariant", pictures)
        chunks = cut(chance, length, pictures[0])
        for first, end in chunks[:: max(1, len(chunks) // 3)]:
            own = attended(requests, [(1, 0, 35), (0, first, end)], "invariant", pictures)[35:]
            assert torch.equal(own, whole[first:end]), (seed, first, end)
            if end - first == 1 or not any(start < end and first < stop for start, stop in pictures[0]):
                found = attended(requests, [(0, first, end)], "invariant", written=requests.lengths)
                assert torch.equal(found, whole[first:end]), (first, end)
        first, end = max(pictures[0], key=lambda picture: picture[1] - picture[0])
        assert torch.equal(attended(requests, [(0, first + 1, end)], "invariant", pictures), whole[first + 1 : end])


def test_splits_are_no_longer_where_a_picture_begins_before_they_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "most_splits", lambda num_heads: 2)
    requests = Requests(Form("bf16", 1, 1, 16), [560])
    pictures: list[Pictures] = [[(505, 540)]]
    whole = attended(requests, [(0, 400, 560)], "invariant", pictures)
    before, behind = ((0, 400, 505), (0, 505, 560))
    apart = [attended(requests, [chunk], "invariant", pictures) for chunk in (before, behind)]
    assert torch.equal(torch.cat(apart), whole)
    assert_right(requests, [(0, 400, 560)], "invariant", pictures)


def test_a_library_knows_no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "library_for", lambda *asked: pytest.fail("it would hide a part of the picture"))
    assert_right(Requests(Form("bf16", 4, 2, 32), [60]), [(0, 0, 60)], "fast", [[(10, 40)]])
