"""Everything that may be asked, in one batch: each answer is what it is alone, bit for bit.

Alone: one request after another, with room for all and without a prefix that is found. In company: all at once, in
chunks, with prefixes shared, and with so few blocks that requests give way to one another and come back. The many
arrangements of batches are tried in one process (tests/worker/test_company.py).
"""

import json
import math
import random
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builders.adapters import adapter
from builders.cases import for_each
from builders.expecting import drafting_whatever_is_expected
from builders.mixed_requests import HELLO, OPTIONS, PERSON, REQUESTS, SEARCHES, SUM, params

from penstock import LLM, RequestOutput, SamplingParams
from penstock.frontend.models.model_files import find_model
from penstock.frontend.receipts.receipt import Receipt
from penstock.frontend.receipts.written import packed_ids
from penstock.frontend.requests import door
from penstock.frontend.requests.continuation import Continuation, packed_logprobs
from penstock.frontend.verify.verdict import Verdict
from penstock.protocol.messages import Said
from penstock.protocol.wire import column


def generated(llm: LLM, names: list[str], **salt: str) -> dict[str, tuple]:
    numbers = {name: number for number, name in enumerate(REQUESTS)}
    given = [params(numbers[name], {**REQUESTS[name][1], **salt}) for name in names]
    outputs = llm.generate([REQUESTS[name][0] for name in names], given, use_tqdm=False)
    return {name: told(output) for name, output in zip(names, outputs, strict=True)}


def gone_on(llm: LLM, alone: dict[str, tuple], choice: random.Random) -> dict[str, tuple]:
    """The answers to the same requests, each of which goes on after a part of every sample's tokens."""
    vocab_size, prompts = llm.get_tokenizer().vocab_size, []
    for name in alone:
        text, own = REQUESTS[name]
        said = []
        for token_ids, *_, logprobs, _ in alone[name][0]:
            length = choice.randint(0, len(token_ids))
            top = own.get("logprobs")
            parts = [] if logprobs is None else [packed_logprobs(logprobs[:length], vocab_size if top < 0 else top)]
            said.append(Said(column(token_ids[:length]), parts))
        prompts.append(Continuation(text, said))
    numbers = {name: number for number, name in enumerate(REQUESTS)}
    outputs = llm.generate(prompts, [params(numbers[name], REQUESTS[name][1]) for name in alone], use_tqdm=False)
    return {name: told(output) for name, output in zip(alone, outputs, strict=True)}


def searched(llm: LLM, name: str, **salt: str) -> dict[str, tuple]:
    prompt, search = SEARCHES[name]
    [output] = llm.beam_search([{**prompt, **salt}], search, use_tqdm=False)
    return {name: told(output)}


def told(output: RequestOutput) -> tuple:
    """All that depends on the request."""
    assert output.error_code == 200, output.error_msg
    answers = [
        (list(answer.token_ids), answer.text, answer.reasoning_content, answer.finish_reason, answer.stop_reason,
         answer.logprobs, answer.cumulative_logprob)
        for answer in output.outputs
    ]  # fmt: skip
    return answers, output.prompt_logprobs


@pytest.fixture(scope="module")
def pocket_adapters(tmp_path_factory) -> dict[str, Path]:
    folder, pocket = tmp_path_factory.mktemp("adapters"), find_model("pocket").folder
    return {
        name: adapter(folder / name, pocket, rank=8, seed=seed, strength=3.0)
        for seed, name in enumerate(("first", "second"))
    }


@pytest.fixture(scope="module")
def alone(pocket_llm, pocket_adapters) -> dict[str, tuple]:
    """Each with a salt of its own, so that nothing is found of what came before it."""
    for name, folder in pocket_adapters.items():
        pocket_llm.load_lora(name, folder)
    found: dict[str, tuple] = {}
    for name in REQUESTS:
        found |= generated(pocket_llm, [name], cache_salt=f"alone: {name}")
    for name in SEARCHES:
        found |= searched(pocket_llm, name, cache_salt=f"alone: {name}")
    for name in pocket_adapters:
        pocket_llm.unload_lora(name)
    return found


@contextmanager
def company(adapters: dict[str, Path], **options: Any) -> Iterator[LLM]:
    """With little room: four beams of the longest prompt need some 20 blocks; all requests together would need 200."""
    small = {"num_gpu_blocks_override": 40, "max_num_batched_tokens": 96, "static_decode_blocks": 0}
    with LLM("pocket", **OPTIONS, **small, **options) as llm:
        for name, folder in adapters.items():
            llm.load_lora(name, folder)
        yield llm


@pytest.fixture(scope="module")
def crowded(pocket_adapters) -> Iterator[LLM]:
    with company(pocket_adapters) as llm:
        yield llm


def assert_same(found: dict[str, tuple], alone: dict[str, tuple]) -> None:
    different = [name for name in found if found[name] != alone[name]]
    assert not different, "\n".join(f"{name}: {found[name]}\nalone: {alone[name]}" for name in different)


def assert_same_together(llm: LLM, alone: dict[str, tuple], choice: random.Random) -> None:
    names = list(REQUESTS)
    choice.shuffle(names)
    half = len(names) // 2
    with ThreadPoolExecutor(max_workers=8) as threads:
        waiting = [threads.submit(generated, llm, part) for part in (names[:half], names[half:])]
        waiting += [threads.submit(searched, llm, name) for name in SEARCHES]
        found = {name: answer for each in waiting for name, answer in each.result(timeout=600).items()}
    assert found.keys() == alone.keys()
    assert_same(found, alone)
    stats = llm.stats()
    assert (stats.running, stats.waiting, stats.free_blocks) == (0, 0, stats.blocks)


@pytest.mark.parametrize("order", [0, pytest.param(1, marks=pytest.mark.long)])
def test_every_answer_is_what_it_is_alone(crowded, alone, order):
    assert_same_together(crowded, alone, random.Random(order))
    stats = crowded.stats()
    assert stats.preemptions > 0 and stats.cached_tokens > 0, "the company was meant to be crowded"


@pytest.mark.parametrize("order", [0, *(pytest.param(order, marks=pytest.mark.long) for order in range(1, 12))])
def test_every_answer_goes_on_from_any_of_its_tokens_as_if_it_had_never_been_cut(crowded, alone, order):
    whole = {name: answer for name, answer in alone.items() if name in REQUESTS}
    before = crowded.stats().generated_tokens
    assert_same(gone_on(crowded, whole, random.Random(order)), whole)
    num_tokens = sum(len(token_ids) for answers, _ in whole.values() for token_ids, *_ in answers)
    assert crowded.stats().generated_tokens - before < 0.7 * num_tokens, "what was said isn't sampled again"


def mistaken(token_ids: list[int], choice: random.Random) -> list[int]:
    """An answer as an earlier run might have given it: some tokens replaced, left out or inserted."""
    said: list[int] = []
    for token in token_ids:
        kind = choice.randrange(10)
        said += [] if kind == 0 else [choice.randrange(300)] if kind == 1 else [token, 40] if kind == 2 else [token]
    return said


@pytest.fixture(scope="module")
def speculating(pocket_adapters, tmp_path_factory) -> Iterator[LLM]:
    """With drafts, whatever they are worth; the same little room."""
    drafting = drafting_whatever_is_expected(tmp_path_factory.mktemp("run"))
    with company(pocket_adapters, speculative_config=drafting) as llm:
        yield llm


@pytest.mark.parametrize("order", [0, *(pytest.param(order, marks=pytest.mark.long) for order in range(1, 40))])
def test_every_answer_is_what_it_is_alone_whatever_is_drafted(speculating, alone, order, monkeypatch):
    choice = random.Random(order)
    expected = {
        number: [column(mistaken(token_ids, choice)) for token_ids, *_ in alone[name][0]]
        for number, name in enumerate(REQUESTS)
    }
    monkeypatch.setattr(door, "_expected", lambda prompt, *_: [] if prompt.beams else expected[prompt.seed])
    before = speculating.stats()
    assert_same_together(speculating, alone, choice)
    stats = speculating.stats()
    drafted, accepted = stats.draft_tokens - before.draft_tokens, stats.accepted_tokens - before.accepted_tokens
    assert 0 < accepted < drafted


@pytest.mark.long
def test_every_answer_is_what_it_is_alone_without_drafts(pocket_adapters, alone):
    with company(pocket_adapters, speculative_config={"method": "off"}) as llm:
        assert_same_together(llm, alone, random.Random(0))
        assert llm.stats().draft_tokens == 0


@pytest.fixture(scope="module")
def receipted(crowded) -> dict[str, RequestOutput]:
    """The same answers with receipts."""
    given = [params(number, {**own, "receipt": True}) for number, (_, own) in enumerate(REQUESTS.values())]
    outputs = crowded.generate([prompt for prompt, _ in REQUESTS.values()], given, use_tqdm=False)
    return dict(zip(REQUESTS, outputs, strict=True))


def test_every_answer_is_proved_by_its_receipt_beside_others(crowded, alone, receipted):
    assert {name: told(output) for name, output in receipted.items()} == {name: alone[name] for name in REQUESTS}
    before = crowded.stats().steps
    with ThreadPoolExecutor(max_workers=2) as threads:
        beside = threads.submit(generated, crowded, list(REQUESTS)[::3])
        verdicts = dict(zip(receipted, crowded.verify(receipted.values()), strict=True))
        beside.result(timeout=600)
    assert not {name: verdict.sentence for name, verdict in verdicts.items() if verdict.status != "proved"}
    before = crowded.stats().steps
    assert all(verdict.status == "proved" for verdict in crowded.verify([receipted["free"]]))
    assert crowded.stats().steps - before < 6, "60 tokens are computed together"


def changed(output: RequestOutput, **fields: Any) -> RequestOutput:
    """The output, with a receipt that somebody has changed and whose checksum fits."""
    receipt = msgspec.structs.replace(Receipt.read(output.receipt), **fields)
    return replace(output, receipt=receipt.text())


def with_token(output: RequestOutput, sample: int, place: int) -> RequestOutput:
    samples = list(Receipt.read(output.receipt).samples)
    ids = samples[sample].ids
    ids[place] = (ids[place] + 1) % 100
    samples[sample] = msgspec.structs.replace(samples[sample], token_ids=packed_ids(ids))
    return changed(output, samples=samples)


def test_a_changed_token_is_found_at_its_place_in_every_kind_of_answer(crowded, receipted):
    choice, forged, places = random.Random(4), {}, {}
    for name, output in receipted.items():
        sample = choice.randrange(len(output.outputs))
        places[name] = sample, choice.randrange(len(output.outputs[sample].token_ids))
        forged[name] = with_token(output, *places[name])
    found = dict(zip(forged, crowded.verify(forged.values()), strict=True))
    for name, (sample, place) in places.items():
        had, verdict = Receipt.read(forged[name].receipt).samples[sample].ids[place], found[name]
        draws = receipted[name].outputs[sample].token_ids[place]
        assert (verdict.status, verdict.sample, verdict.position) == ("differs", sample, place), name
        assert (verdict.had, verdict.draws) == (had, draws), name


def test_whatever_else_is_changed_in_an_answer_or_its_receipt_is_found(crowded, receipted):
    scored, free = receipted["scored"], receipted["free"]
    hot = {"n": 3, "temperature": 4.0, "logprobs": 1, "max_tokens": 24, "ignore_eos": True, "receipt": True}
    [sampled] = crowded.generate([HELLO], params(1, hot), use_tqdm=False)
    receipt = Receipt.read(sampled.receipt)
    in_body = {
        "a text": lambda body: body["outputs"][1].update(text=body["outputs"][1]["text"] + " "),
        "a token of the output": lambda body: body["outputs"][0]["token_ids"].append(7),
        "a finish_reason": lambda body: body["outputs"][0].update(finish_reason="abort"),
        "a prompt": lambda body: body["prompt_token_ids"].pop(),
        "a sample": lambda body: body["outputs"].pop(),
        "a last bit": lambda body: last_bit(chosen(body["outputs"][2])),
        "a rank": lambda body: chosen(body["outputs"][2]).update(rank=9),
        "another's receipt": lambda body: body.update(receipt=free.receipt),
    }
    bodies = {}
    for name, change in in_body.items():
        change(body := sampled.to_dict())
        bodies[name] = body
    change_of_receipt = {
        "a seed": {"params": {**receipt.params, "seed": 99}},
        "a temperature": {"params": {**receipt.params, "temperature": 0.3}},
        "a penalty": {"params": {**receipt.params, "repetition_penalty": 5.0}},
        "an adapter": {"params": {**receipt.params, "lora_name": "first"}},
        "a shorter prompt": {"prompt": packed_ids(receipt.prompt_ids[1:])},
        "fewer samples": {"samples": receipt.samples[:2]},
        "a reason": {"samples": [msgspec.structs.replace(each, finish_reason="abort") for each in receipt.samples]},
    }
    bodies |= {name: changed(sampled, **fields).to_dict() for name, fields in change_of_receipt.items()}
    damaged = {"a letter": sampled.receipt[:40] + "x" + sampled.receipt[41:], "the end": sampled.receipt[:-9]}
    bodies |= {name: {**sampled.to_dict(), "receipt": text} for name, text in damaged.items()}
    foreign = {"weights": "0" * 64, "kernels": "native, other", "option quantization": '"int8"'}
    for name, value in foreign.items():
        bodies[name] = changed(sampled, facts={**receipt.facts, name: value}).to_dict()
    bodies["no receipt"] = {**scored.to_dict(), "receipt": None}
    bodies["what is whole"] = scored.to_dict()
    found = dict(zip(bodies, verified(crowded, bodies.values()), strict=True))
    assert [name for name, verdict in found.items() if verdict.status == "proved"] == ["what is whole"]
    unjudged = {*damaged, *foreign, "an adapter", "fewer samples", "no receipt"}
    assert {name for name, verdict in found.items() if verdict.status == "not judged"} == unjudged
    assert (found["a last bit"].position, found["a last bit"].sample) == (0, 2)


def chosen(sample: dict[str, Any]) -> dict[str, Any]:
    """The first token's log-probability."""
    return next(iter(sample["logprobs"][0].values()))


def last_bit(entry: dict[str, Any]) -> None:
    entry["logprob"] = math.nextafter(entry["logprob"], -1000)


def verified(llm: LLM, bodies: Iterable[dict[str, Any]]) -> list[Verdict]:
    """As lines of a file, which is what others have."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.writelines(json.dumps(body) + "\n" for body in bodies)
        file.flush()
        return llm.verify(file.name)


def test_the_company_was_mixed(alone):
    """Each thing that the requests ask for has happened: else they would prove nothing."""
    reasons = {(finish, stop) for answers, _ in alone.values() for _, _, _, finish, stop, *_ in answers}
    assert {("stop", None), ("length", None), ("stop", "repetition"), ("stop", "7")} <= reasons
    texts = {name: answers[0][1] for name, (answers, _) in alone.items()}
    assert all('"age":' in text for _, text, *_ in alone["calls"][0]), "what is called has the shape of its schema"
    assert '"age"' in texts["json"] and '"age"' in texts["adapter and json"]
    assert texts["json"] != texts["adapter and json"]
    thoughts = {name: answers[0][2] for name, (answers, _) in alone.items()}
    assert len(thoughts["short thought"]) < len(thoughts["greedy"])
    assert texts["adapter"] != texts["other adapter"]
    assert len({text for _, text, *_ in alone["beams"][0]}) == 4


@for_each("own", [
    {"guided_json": PERSON}, {"reasoning_max_tokens": 4, "temperature": 0},
    {"lora_name": "second", "guided_json": PERSON}, {"temperature": 1.5, "top_k": 50, "repetition_penalty": 1.3},
])  # fmt: skip
def test_log_probabilities_of_an_answer_are_those_of_its_text_as_a_prompt(crowded, own):
    """Forced tokens have them too, and masks and penalties on the others change none."""
    [written] = crowded.generate([SUM], params(3, {**own, "logprobs": 3}), use_tqdm=False)
    text = written.prompt_token_ids + list(written.outputs.token_ids)
    reading = SamplingParams(max_tokens=1, prompt_logprobs=3, lora_name=own.get("lora_name"))
    [read] = crowded.generate([text], reading, use_tqdm=False)
    assert read.prompt_logprobs[len(written.prompt_token_ids) :] == written.outputs.logprobs
