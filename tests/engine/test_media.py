"""When pictures are encoded, what their rows share and cost, and which are refused.

That chunks never come before their rows, and that each token gets exactly its own, is what the worker in `Harness`
checks in every step.
"""

import re

import pytest
from builders.engine_harness import Harness, limits, medium, prompt
from msgspec.structs import replace

from penstock.engine.scheduler import Scheduler
from penstock.protocol.media import MediaPlan
from penstock.protocol.messages import Prompt, StepPlan, values

PLAN = MediaPlan(num_rows=20, row_bytes=1, num_layers=4, most_patches=100, most_at_once=50)
PLACEHOLDER = 500


def harness(**options) -> Harness:
    return Harness(**{"media": PLAN, **options})


def with_picture(request_id: int, picture: int, *, before=5, rows=6, behind=5, num_patches=10, **params) -> Prompt:
    tokens = [7] * before + [PLACEHOLDER] * rows + [8] * behind
    return prompt(request_id, tokens, media=[medium(picture, (before, rows), num_patches=num_patches)], **params)


def layers(plans: list[StepPlan]) -> list[int]:
    """How many layers of media each step computes."""
    return [sum(encode.num_layers for encode in plan.encodes) for plan in plans]


def test_a_picture_beside_nobody_is_encoded_and_read_in_one_step():
    tested = harness()
    tested.add(with_picture(1, 1, max_tokens=2))
    plan = tested.plan()
    assert plan and layers([plan]) == [4] and list(values(plan.num_tokens)) == [16]
    [rows] = plan.media
    assert (rows.row, rows.offset, rows.count, rows.first) == (0, 5, 6, 0)
    assert plan.new[0].positions == bytes(12 * 16)


def test_a_streamed_answer_waits_for_some_layers_and_the_rows_for_all_of_them():
    tested = harness(mm_encoder_budget=20)
    tested.add(replace(prompt(1, [1, 2, 3], max_tokens=30), is_streamed=True))
    for _ in range(3):
        tested.plan()
        tested.finish()
    tested.add(with_picture(2, 1))
    tested.run()
    assert max(layers(tested.plans)) == 2, "20 patches x layers are two layers of 10 patches"
    assert sum(layers(tested.plans)) == 4
    assert all(1 in tested.rows(plan).values() for plan in tested.plans[1:10]), "the stream is in every step"


def test_one_layer_is_encoded_though_it_exceeds_the_budget():
    tested = harness(mm_encoder_budget=1)
    tested.add(replace(prompt(1, [1, 2, 3], max_tokens=30), is_streamed=True))
    tested.plan()
    tested.finish()
    tested.add(with_picture(2, 1))
    tested.run()
    assert max(layers(tested.plans)) == 1


def test_a_step_encodes_alone_if_the_next_token_is_a_row():
    tested = harness(max_num_batched_tokens=20)
    tested.add(with_picture(1, 1, before=0, num_patches=40))
    tested.run()
    first, second, *_ = tested.plans
    assert (layers([first, second]), first.slots, len(second.slots)) == ([2, 2], b"", 4)


def test_the_same_picture_in_many_requests_is_encoded_once():
    tested = harness(shares_prefixes=False)
    tested.add(*[with_picture(number, 1, n=2) for number in range(4)])
    tested.run()
    assert tested.worker.media.num_encoded == 1


def test_another_picture_in_its_place_shares_only_what_stands_before_it():
    tested = harness()
    for number, picture in enumerate([1, 1, 2]):
        tested.add(with_picture(number, picture))
        tested.run()
    assert [tested.heard[number * 128].opened.num_cached for number in range(3)] == [0, 12, 4]


def test_other_rows_of_the_same_picture_are_not_shared():
    tested = harness()
    tokens = [7] * 4 + [PLACEHOLDER] * 4 + [8] * 4 + [PLACEHOLDER] * 4 + [9]
    tested.add(prompt(1, tokens, media=[medium(1, (4, 4), (12, 4))]))
    tested.run()
    tested.add(prompt(2, tokens, media=[medium(1, (4, 4)), medium(2, (12, 4))]))
    tested.add(prompt(3, tokens, media=[medium(1, (12, 4))]))
    tested.run()
    assert [tested.heard[number * 128].opened.num_cached for number in (1, 2, 3)] == [0, 12, 4]


def test_a_computed_prefix_needs_no_picture():
    tested = harness(media=replace(PLAN, num_rows=6))
    tested.add(with_picture(1, 1))
    tested.run()
    tested.add(with_picture(2, 2))  # takes the room of the first one's rows
    tested.run()
    encoded = tested.worker.media.num_encoded
    tested.add(with_picture(3, 1))
    tested.run()
    assert tested.worker.media.num_encoded == encoded == 2


def test_more_pictures_than_fit_are_encoded_and_read_one_after_the_other():
    tested = harness(media=replace(PLAN, num_rows=7))
    tokens, media = [], []
    for picture in range(5):
        media.append(medium(picture, (len(tokens) + 1, 6)))
        tokens += [7] + [PLACEHOLDER] * 6
    tested.add(prompt(1, [*tokens, 8], media=media))
    tested.run()
    assert tested.worker.media.num_encoded == 5
    assert tested.ended(1).finish_reason == "length"


def test_an_aborted_request_keeps_no_picture():
    tested = harness(max_num_batched_tokens=10)
    tested.add(with_picture(1, 1, num_patches=40))
    tested.plan()
    tested.abort(128)
    tested.add(*[with_picture(number, number) for number in range(2, 6)])
    tested.run()
    assert tested.scheduler.encoder.entries.num_taken <= PLAN.num_rows


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (with_picture(1, 1, rows=21), "21 rows, and memory keeps 20.*max_pixels.*mm_cache"),
        (with_picture(1, 1, num_patches=101), "101 patches, and the encoder takes 100.*max_frames"),
        (with_picture(1, 1, num_patches=51), "more than 50 patches.*max_pixels"),
        (prompt(1, [1, 2], media=[medium(1, (1, 2))]), "one behind the other"),
        (prompt(1, [1, 2], media=[medium(1, (1, 1)), medium(2, (0, 1))]), "one behind the other"),
        (prompt(1, [1, 2], media=[medium(1)]), "one behind the other"),
    ],
)
def test_what_can_never_be_encoded_is_refused_with_what_to_do(asked, sentence):
    tested = harness()
    tested.add(asked)
    ended = tested.ended(1)
    assert ended.error_code == 400
    assert re.search(sentence, ended.error_msg), ended.error_msg


def test_a_model_that_sees_nothing_refuses_pictures():
    tested = Harness()
    tested.add(with_picture(1, 1))
    assert "sees none" in tested.ended(1).error_msg


def test_nothing_is_planned_for_media_where_there_are_none():
    scheduler = Scheduler(limits())
    scheduler.add(prompt(1, [1, 2, 3]))
    plan = scheduler.plan()
    assert plan and (plan.dropped_entries, plan.encodes, plan.media) == (b"", [], [])


def test_rows_that_see_one_another_are_computed_in_one_step_beside_streams_too():
    tested = harness(max_num_batched_tokens=12, max_num_seqs=4, media=replace(PLAN, has_whole_spans=True))
    tested.add(replace(prompt(1, [1, 2, 3], max_tokens=60), is_streamed=True))
    for _ in range(3):
        tested.plan()
        tested.finish()
    tested.add(with_picture(2, 1, before=3, rows=9, num_patches=1))
    tested.run()
    assert [rows.count for plan in tested.plans for rows in plan.media] == [9]


def test_a_picture_whose_rows_fit_into_no_step_is_refused_with_what_would_take_them():
    tested = harness(max_num_batched_tokens=12, max_num_seqs=5, media=replace(PLAN, has_whole_spans=True))
    tested.add(with_picture(1, 1, rows=9))
    assert "9 rows that are computed in one step, beside a token of each of 5" in tested.ended(1).error_msg
