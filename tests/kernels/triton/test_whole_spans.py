"""Pictures in a prompt's attention on a GPU, in Triton's interpreter: tokens of a span see one another."""

from builders import interpreted  # noqa: F401  isort: skip

import random

import pytest
import torch
from builders.packed_steps import Form, Requests
from torch import Tensor

from penstock.kernels.paged import KV_DTYPES, DeviceRows
from penstock.kernels.reference.paged_attention import attention_paged, attention_paged_invariant
from penstock.kernels.triton.attention import paged

FORMS = {"fast": attention_paged, "invariant": attention_paged_invariant}
# Of the output's norm, against the formula on what is stored.
TOLERANCES = {"fp32": 1e-6, "fp16": 1e-3, "bf16": 6e-3, "int8": 6e-3}
QUICK_KINDS = ["bf16", *(pytest.param(kind, marks=pytest.mark.long) for kind in KV_DTYPES if kind != "bf16")]

Chunks = list[tuple[int, int, int]]  # (request, first, end)
Pictures = list[tuple[int, int]]  # (first, end)


def seeing(requests: Requests, chunks: Chunks, pictures: list[Pictures]) -> tuple[Tensor, DeviceRows]:
    """The step of these chunks, of requests with such pictures each."""
    query, rows = requests.step(chunks)
    ends = []
    for request, first, end in chunks:
        of_request = torch.arange(1, requests.lengths[request] + 1)
        for start, stop in pictures[request]:
            of_request[start:stop] = stop
        ends.append(of_request[first:end])
    rows.seen_ends = torch.cat(ends)
    return query, rows


def attended(requests: Requests, chunks: Chunks, pictures: list[Pictures], form: str) -> Tensor:
    query, rows = seeing(requests, chunks, pictures)
    written = [max((end for at, _, end in chunks if at == each), default=0) for each in range(len(requests.lengths))]
    scale, window = requests.form.head_dim**-0.5, requests.form.window
    given = (query, requests.memory(written), rows, scale, window, requests.form.sinks)
    return FORMS[form].versions["triton"](*given)


def assert_right(requests: Requests, chunks: Chunks, pictures: list[Pictures], form: str) -> None:
    found = attended(requests, chunks, pictures, form)
    query, rows = seeing(requests, chunks, pictures)
    scale, window = requests.form.head_dim**-0.5, requests.form.window
    expected = attention_paged.reference(query, requests.memory(), rows, scale, window, requests.form.sinks)
    error = ((found - expected).norm() / expected.norm()).item()
    assert error <= TOLERANCES[requests.form.kind], f"off by {error:.1e} of the output's norm: {chunks}, {pictures}"


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


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", QUICK_KINDS)
def test_random_pictures_are_seen_whole(kind: str, form: str) -> None:
    for seed in range(4):
        chance = random.Random(seed)
        lengths = [chance.randint(1, 90) for _ in range(3)]
        window = chance.choice((None, 1, 7, 40))
        requests = Requests(Form(kind, chance.choice((1, 4)), 1, 32, window=window, has_sinks=seed % 2 > 0), lengths)
        pictures = [drawn(chance, length) for length in lengths]
        of_requests = enumerate(zip(lengths, pictures, strict=True))
        chunks = [(number, *chance.choice(cut(chance, *of_request))) for number, of_request in of_requests]
        assert_right(requests, chunks, pictures, form)


@pytest.mark.parametrize("form", FORMS)
def test_a_picture_may_lie_across_the_end_of_a_split_and_answers_stand_beside_it(form: str) -> None:
    requests = Requests(Form("bf16", 2, 1, 32, window=300), [600, 330, 50])
    pictures = [[(240, 300), (500, 540)], [], [(3, 12)]]
    assert_right(requests, [(0, 200, 310), (1, 329, 330), (2, 0, 50)], pictures, form)
    assert_right(requests, [(0, 480, 600), (1, 329, 330)], pictures, form)


@pytest.mark.parametrize("kind", QUICK_KINDS)
def test_a_token_has_the_same_bits_alone_in_company_and_however_its_prompt_is_chunked(kind: str) -> None:
    """Behind a picture, too, in a step that has none of it; and within one whose first part was found in the cache."""
    for seed, length in ((0, 80), (1, 280)):
        chance = random.Random(seed)
        requests = Requests(Form(kind, 3, 1, 16, window=chance.choice((None, 50))), [length, 40])
        pictures = [drawn(chance, length), [(5, 30)]]
        whole = attended(requests, [(0, 0, length)], pictures, "invariant")
        for first, end in cut(chance, length, pictures[0]):
            own = attended(requests, [(1, 0, 35), (0, first, end)], pictures, "invariant")[35:]
            assert torch.equal(own, whole[first:end]), (seed, first, end)
            if end - first == 1 or not any(start < end and first < stop for start, stop in pictures[0]):
                query, rows = requests.step([(0, first, end)])
                window = requests.form.window
                given = (query, requests.memory(), rows, requests.form.head_dim**-0.5, window, None)
                assert torch.equal(FORMS["invariant"].versions["triton"](*given), whole[first:end]), (first, end)
        first, end = max(pictures[0], key=lambda picture: picture[1] - picture[0])
        assert torch.equal(attended(requests, [(0, first + 1, end)], pictures, "invariant"), whole[first + 1 : end])


def test_splits_are_no_longer_where_a_picture_begins_before_they_would_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.kernels.triton.attention.shape.SPLITS_AT_MOST", 2)
    requests = Requests(Form("bf16", 1, 1, 16), [560])
    pictures: list[Pictures] = [[(505, 540)]]
    whole = attended(requests, [(0, 400, 560)], pictures, "invariant")
    before, behind = ((0, 400, 505), (0, 505, 560))
    apart = [attended(requests, [chunk], pictures, "invariant") for chunk in (before, behind)]
    assert torch.equal(torch.cat(apart), whole)
    assert_right(requests, [(0, 400, 560)], pictures, "invariant")


def test_a_library_knows_no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paged, "library_for", lambda *asked: pytest.fail("it would hide a part of the picture"))
    assert_right(Requests(Form("bf16", 4, 2), [90]), [(0, 0, 90)], [[(10, 60)]], "fast")
