"""What a job makes of its records and rows: its state, its ledger, the seeds and the order of its rows."""

import json
from collections.abc import Iterator
from itertools import groupby
from types import SimpleNamespace

import msgspec
from builders.cases import for_each

from penstock.frontend.jobs.answer_keeper import AnswerKeeper
from penstock.frontend.jobs.job_input import InputLine
from penstock.frontend.jobs.journal.records import (
    Answered,
    Began,
    Bits,
    Continued,
    Died,
    Forgotten,
    Head,
    JobState,
    Progressed,
    unpacked,
)
from penstock.frontend.jobs.ledger import EnergyMeter, ledger
from penstock.frontend.jobs.run import seed_of
from penstock.frontend.rows.order import beginning_of, in_prefix_order
from penstock.frontend.rows.prompts import Row, json_row
from penstock.protocol.errors import RequestError
from penstock.protocol.messages import Said
from penstock.protocol.parameters.sampling import SamplingParams
from penstock.protocol.wire import column


def test_the_last_record_of_a_row_counts():
    state = JobState()
    for record in (
        Head({}, 9), Answered(3, 1, 200, 5, 0, 2, b"x"), Answered(8, 1, 400, 0, 0, 0, b"y"), Died([1, 3], "a cause"),
        Died([1], "another"), Forgotten([8, 2]), Answered(1, 1, 200, 1, 1, 1, b"z"),
    ):  # fmt: skip
        state.take(record)
    assert (state.num_done, state.num_failed, state.num_prompt, state.deaths) == (2, 0, 6, {3: 1})
    assert [row for row in range(20) if row in state.done] == [1, 3]


def test_what_unfinished_answers_have_said_counts_among_the_tokens_until_it_is_dropped():
    said = [Said(b"\0" * 40), Said(b"\0" * 8)]
    records = [Head({}, 9), Began(False), Progressed(0.0, 2, 0), Continued(1, said), Continued(2, said)]
    state = JobState.of([*records, Continued(1, said), Progressed(4.0, 2, 0)])
    assert state.num_output == 36 and state.tokens_per_second == 9
    for record, num_output in ((Answered(1, 1, 200, 5, 0, 30, b"x"), 42), (Forgotten([2]), 30)):
        state.take(record)
        assert state.num_output == num_output


def test_each_record_of_an_unfinished_answer_has_what_was_said_since_the_last():
    state = JobState()
    keeper = SimpleNamespace(job=SimpleNamespace(state=state, append=state.take))
    for count in (0, 1, 3, 3, 4):
        said = [Said(column(range(sample, sample + count))) for sample in range(2)]
        AnswerKeeper.keep_unfinished(keeper, 3, said)
    assert state.said == {3: said} and state.num_said == 8


def test_a_record_of_an_earlier_version_is_read_without_its_later_fields():
    assert unpacked(msgspec.msgpack.encode(["answered", 3, 1, 200, 5, 0, 2, b"x"])) == Answered(
        3, 1, 200, 5, 0, 2, b"x"
    )


def test_a_set_of_rows_takes_a_bit_a_row():
    rows = Bits()
    assert not any(rows.put(row, True) for row in range(0, 100_000, 3))
    assert sum(row in rows for row in range(200_000)) == len(range(0, 100_000, 3))
    assert rows.put(3, False) and not rows.put(3, False) and 3 not in rows and 6 in rows


def test_the_seed_of_a_row_depends_on_the_job_the_row_and_its_custom_id():
    seeds = {seed_of(*given) for given in ((0, 0, ""), (0, 1, ""), (1, 0, ""), (0, 0, "a"))}
    assert len(seeds) == 4 and all(0 <= seed < 2**63 for seed in seeds) and seed_of(0, 1, "a") == seed_of(0, 1, "a")


def test_rows_that_begin_alike_are_computed_one_after_another_within_a_stretch():
    rules = [f"Rule {number}: " + "be brief. " * 40 for number in range(5)]
    asked = [(f"{index}", rules[index * 7 % 5]) for index in range(3000)]

    def rows() -> Iterator[tuple[InputLine, Row]]:
        for index, (name, rule) in enumerate(asked):
            messages = [{"role": "system", "content": rule}, {"role": "user", "content": name}]
            line = json.dumps({"custom_id": name, "url": "/v1/chat/completions", "body": {"messages": messages}})
            yield InputLine(index, index + 1, line), json_row(index + 1, line, SamplingParams())

    found = [line.row for line, _ in in_prefix_order(rows())]
    assert sorted(found) == list(range(3000))
    rules_in_turn = [rule for rule, _ in groupby(asked[row][1] for row in found)]
    assert len(rules_in_turn) <= 2 * len(rules)  # two stretches
    tenants = [Row("same", SamplingParams(cache_salt=salt)) for salt in "abab"]
    lines = [(InputLine(index, index + 1, "same"), row) for index, row in enumerate(tenants)]
    assert [line.row for line, _ in in_prefix_order(lines)] == [0, 2, 1, 3]


@for_each("prompt", ["text", [1, 2], {"prompt_token_ids": [1 << 80]}, {"prompt": 5}, RequestError("no"), None])
def test_a_row_of_any_kind_has_a_place_among_the_others(prompt):
    assert isinstance(beginning_of(Row(prompt, SamplingParams()))[2], str)


def test_the_ledger_has_the_energy_of_all_runs_where_the_machine_tells(tmp_path):
    for zone, name in (("0", "package-0"), ("0:0", "core"), ("0:1", "dram"), ("1", "psys")):
        (folder := tmp_path / f"intel-rapl:{zone}").mkdir()
        (folder / "name").write_text(f"{name}\n")
        (folder / "max_energy_range_uj").write_text("10000000\n")
        (folder / "energy_uj").write_text("9000000\n")
    meter = EnergyMeter(tmp_path)
    (tmp_path / "intel-rapl:0/energy_uj").write_text("1000000\n")  # it has begun again at 0
    (tmp_path / "intel-rapl:0:1/energy_uj").write_text("9500000\n")
    assert meter.joules() == 2.5 and meter.joules() == 2.5
    assert EnergyMeter(tmp_path / "nowhere").joules() == 0
    records = [Began(False), Progressed(1.0, 0, 0, 1800.0), Began(False), Progressed(2.0, 0, 0, 3600.0)]
    assert "energy 1.50 Wh" in ledger(JobState.of(records))
    assert "energy" not in ledger(JobState.of([Began(False), Progressed(1.0, 0, 0)]))
