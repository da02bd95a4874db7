"""Receipts in a journal: what lines share is kept once, and each comes out as it went in, unless it is damaged."""

import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from builders.batch_input import line as batch_line
from builders.cases import for_each
from msgspec.structs import replace

from penstock.frontend.jobs.job_files import JobFiles
from penstock.frontend.jobs.journal.journal import Journal, read_journal
from penstock.frontend.jobs.journal.kept_answers import KeptAnswer, KeptAnswers
from penstock.frontend.jobs.journal.kept_receipts import ReceiptKeeper
from penstock.frontend.jobs.journal.records import Answered, Forgotten, Head, JobState, Pattern, packed, unpacked
from penstock.frontend.receipts.door import ReceiptDoor
from penstock.frontend.receipts.receipt import PLAIN, ClaimedSample, Receipt, View
from penstock.frontend.receipts.written import packed_ids
from penstock.frontend.verify.lines import from_file
from penstock.protocol.errors import RequestError
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column

FACTS = {"weights": "5ad1" * 16, "kernels": "native avx512"}
SYSTEM = [37 * number % 4093 for number in range(300)]


def receipt(number: int, num_more: int = 0, samples: int = 1) -> Receipt:
    ids = [*SYSTEM, *((number * each) % 4001 for each in range(20 + num_more))]
    params = {"max_tokens": 8, "temperature": 0.0, "seed": 7**20 + number}
    said = [ClaimedSample(packed_ids([number, sample, 9]), "stop", None) for sample in range(samples)]
    return Receipt(FACTS, params, packed_ids(ids), said, is_chat=True)


class Kept:
    """A journal that keeps receipts."""

    def __init__(self, path) -> None:
        self.path, self.state, self.journal = path, JobState(), Journal.open(path)
        self.keeper = ReceiptKeeper(self.state, self.append)
        self.append(Head({}, 1000))

    def append(self, record) -> None:
        self.state.take(record)
        self.journal.append(packed(record))

    def keep(self, row: int, of: Receipt, view: View = PLAIN) -> Answered:
        said = [column(sample.ids) for sample in of.samples]
        record = Answered(row, 1, 200, 1, 0, 1, b'{"id":"batch_req_0","response":{"body":{}},"error":null}\n', said)
        self.keeper.keep(record, of, view, is_shown=False)
        self.append(record)
        return record

    def receipts(self) -> list[Receipt | None]:
        self.journal.commit()
        with KeptAnswers(self.path) as answers:
            return [answer.receipt() for answer in answers]


def test_receipts_come_out_as_they_went_in_under_the_pattern_of_their_head(tmp_path):
    kept = Kept(tmp_path / "out.journal")
    given = [receipt(row, num_more=9000 * (row == 3), samples=1 + row % 3) for row in range(6)]
    for row in range(3):
        kept.keep(row, given[row])
    kept.append(Head({}, 6))  # a change was accepted
    for row in range(3, 6):
        kept.keep(row, given[row], View(is_call=True))
    expected = [*given[:3], *(replace(each, view=View(is_call=True)) for each in given[3:])]
    assert kept.receipts() == expected


@for_each("text, num_samples, is_given", [
    ("x" * 800_000, 1, True), ("x" * 800_000, 128, False), ("x" * 1_100_000, 1, False), ("\ud800", 1, False),
])  # fmt: skip
def test_a_request_gets_a_receipt_that_can_be_read_or_is_refused_before_it_is_answered(text, num_samples, is_given):
    facts = SimpleNamespace(of_model=lambda: FACTS, of_adapter=lambda name: None)
    params = SamplingParams(stop=["\U0001f600" * 512], n=num_samples)
    parsed = SimpleNamespace(beams=None, params=params, is_chat=True)
    prompt = SimpleNamespace(params=params, seed=1, token_ids=column([1]), media=[])
    tools = [{"name": "f", "description": text}]
    with nullcontext() if is_given else pytest.raises(RequestError, match="receipt"):
        begun = ReceiptDoor(facts, None, None).begun(parsed, prompt, tools, "")
        whole = replace(begun.receipt, samples=[ClaimedSample(b"", "stop", params.stop[0])] * num_samples)
        assert Receipt.read(whole.text()) == whole


def test_what_the_lines_of_a_job_share_is_kept_once(tmp_path):
    kept = Kept(tmp_path / "out.journal")
    lengths = [len(kept.keep(row, receipt(row)).receipt) for row in range(50)]
    assert max(lengths) < 100 < len(receipt(0).text()) / 5


def test_a_line_that_only_json_could_write_gets_its_receipt_in_the_same_style(tmp_path):
    record = {"index": 0, "prompt": "\ud800", "outputs": [{"token_ids": [0, 0, 9]}]}
    kept, own = Kept(tmp_path / "out.journal"), receipt(0)
    answered = Answered(0, 1, 200, 1, 0, 1, json.dumps(record).encode() + b"\n")
    kept.keeper.keep(answered, own, PLAIN, is_shown=True)
    line = KeptAnswer(answered, kept.state.pattern).line_with_receipt()
    assert line.decode() == json.dumps({**record, "receipt": own.text()}) + "\n"


@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_damaged_receipt_is_none(tmp_path, is_foreign):
    kept = Kept(tmp_path / "out.journal")
    record = kept.keep(0, receipt(0))
    if is_foreign:
        kept.append(Pattern(b"of others"))
        kept.append(replace(record, row=1))
    else:
        kept.append(replace(record, row=1, token_ids=[]))
    with pytest.raises(RequestError, match="damaged"):
        kept.receipts()


LINES = [
    *('"one"', r'"\ud7ff\\ud800"'),
    json.dumps({"messages": [{"role": "user", "content": "one"}], "id": "mine", "n": 2}),
    batch_line("chat", logprobs=True, n=2), batch_line("shown", receipt=True),
    batch_line("text", "/v1/completions", seed=3),
    batch_line("response", "/v1/responses", metadata={"receipt": "mine"}),
    batch_line("wrong", "/v1/responses", colour=1),
]  # fmt: skip
NUM_ANSWERS = len(LINES) - 1


@pytest.fixture
def answered(batch, tmp_path) -> Callable:
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(LINES))

    def answered(out: Path, *words: object) -> tuple[bytes, bytes]:
        assert batch(source, out, "--max-tokens", 5, *words).returncode == 3
        return made(out)

    return answered


def made(out: Path) -> tuple[bytes, bytes]:
    return out.read_bytes(), JobFiles.of(out).errors.read_bytes()


def bodies_of(path: Path) -> list[list[str]]:
    return [[receipt.text() for receipt in body.receipts] for body in from_file(path.open("rb"), str(path))]


def test_a_journal_has_all_receipts_and_an_export_shows_them_as_if_they_had_been_asked_for(answered, shell, tmp_path):
    out, asked = tmp_path / "out", tmp_path / "asked"
    plain, shown = answered(out), answered(asked, "--receipt")
    assert [content.count(b'"receipt":"pr1_') for content in (plain[0], shown[0])] == [1, NUM_ANSWERS]
    assert "no receipt" not in shell.run("batch", "export", out, "--receipt").stdout and made(out) == shown
    shell.run("batch", "export", out)
    assert made(out) == plain

    answers = [json.loads(line) for line in shown[0].splitlines()]
    expected = [[each.get("receipt") or each["response"]["body"]["receipt"]] for each in answers]
    assert bodies_of(JobFiles.of(out).journal) == bodies_of(out) == bodies_of(asked) == expected
    out.write_bytes(b"".join(reversed(plain[0].splitlines(keepends=True))))
    assert bodies_of(out) == expected[::-1]
    JobFiles.of(out).journal.write_text("of somebody else")
    assert bodies_of(out).count([]) == NUM_ANSWERS - 1


# Of an answer's record, the tag and the fields that were there before receipts.
NUM_FIELDS_BEFORE = 1 + Answered.__struct_fields__.index("receipt")


def test_a_journal_of_an_earlier_version_is_continued_and_has_no_receipts(answered, shell, tmp_path):
    out = tmp_path / "out"
    before, journal = answered(out), JobFiles.of(out).journal
    records = [unpacked(found.record) for found in read_journal(journal)]
    with KeptAnswers(journal) as answers:
        shown = {each.record.row: each.line_with_receipt() for each in answers if each.record.shows_receipt}
    journal.unlink()
    earlier = Journal.open(journal)
    for record in records:
        if isinstance(record, Answered):
            whole = replace(record, line=shown.get(record.row, record.line))
            earlier.append(msgspec.msgpack.encode(msgspec.msgpack.decode(packed(whole))[:NUM_FIELDS_BEFORE]))
        elif not isinstance(record, Pattern):
            earlier.append(packed(record))
    earlier.append(packed(Forgotten([0])))
    earlier.close()
    assert answered(out) == before
    assert f"{NUM_ANSWERS - 2} have no receipt" in shell.run("batch", "export", out, "--receipt").stdout
    has_receipt = [bool(receipts) for receipts in bodies_of(journal)]
    assert has_receipt == [number in (0, 4) for number in range(NUM_ANSWERS)]
