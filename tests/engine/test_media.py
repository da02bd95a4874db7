"""When pictures are encoded, what their rows share and cost, and which are refused.

That chunks never come before their rows, and that each token gets exactly its own, is what the worker in `Harness`
checks in every step.
"""

import re

from builders.cases import for_each
from builders.engine_harness import Harness, answer, medium, prompt
from msgspec.structs import replace

from penstock.protocol.layer_groups import GroupPlan
from penstock.protocol.media import MediaPlan
from penstock.protocol.messages import Prompt, StepPlan
from penstock.protocol.wire import values

PLAN = MediaPlan(num_rows=20, row_bytes=1, num_layers=4, most_patches=1000, most_of_frame=500)
PLACEHOLDER = 500


def harness(**options) -> Harness:
    return Harness(**{"media": PLAN, **options})


def with_picture(request_id: int, picture: int, *, before=5, rows=6, behind=5, num_patches=10, **params) -> Prompt:
    tokens = [7] * before + [PLACEHOLDER] * rows + [8] * behind
    return prompt(request_id, tokens, media=[medium(picture, (before, rows), num_patches=num_patches)], **params)


def works(plans: list[StepPlan]) -> list[int]:
    """How much each step encodes: where attention counts for nothing, patches x layers."""
    return [sum(encode.count for encode in plan.encodes) for plan in plans]


def with_stream(**options) -> Harness:
    tested = harness(**options).add(replace(prompt(1, [1, 2, 3], max_tokens=60), is_streamed=True))
    tested.step(3)
    return tested


def test_a_picture_beside_nobody_is_encoded_and_read_in_one_step_and_counts_in_statistics():
    tested = harness().add(with_picture(1, 1, max_tokens=2))
    plan = tested.plan()
    assert plan and works([plan]) == [40] and list(values(plan.num_tokens)) == [16]
    [rows] = plan.media
    assert (rows.row, rows.offset, rows.count, rows.first) == (0, 5, 6, 0)
    assert plan.new[0].positions == bytes(12 * 16)
    tested = harness(media=replace(PLAN, row_bytes=100)).add(with_picture(1, 1), with_picture(2, 2)).run()
    stats = tested.scheduler.stats()
    assert (stats.media_bytes, stats.used_media_bytes, stats.encoded_media) == (2000, 1200, 2)


def test_a_streamed_answer_waits_for_some_work_but_no_trifle_and_the_rows_for_all_of_it():
    tested = with_stream(mm_encoder_budget=300)
    tested.add(*(with_picture(number, number, num_patches=190) for number in (2, 3))).run()
    assert [work for work in works(tested.plans) if work] == [300] * 5 + [20], "twice 190 patches through 4 layers"
    assert all(1 in tested.rows(plan).values() for plan in tested.plans[1:10]), "the stream is in every step"
    order = [encode.entry for plan in tested.plans for encode in plan.encodes]
    assert order == sorted(order) and tested.worker.media.num_encoded == 2, "one after the other"
    tested = with_stream(mm_encoder_budget=1).add(with_picture(2, 1, num_patches=100)).run()
    assert [work for work in works(tested.plans) if work] == [256, 144]
    tested = harness(media=replace(PLAN, num_full_layers=2, patch_keys=50))
    tested.add(with_picture(1, 1, num_patches=100)).run()
    assert sum(works(tested.plans)) == 100 * 4 + 100 * 2 * 100 // 50, "the keys to which patches attend count, too"


def test_a_step_encodes_alone_if_the_next_token_is_a_row():
    tested = harness(max_num_batched_tokens=20).add(with_picture(1, 1, before=0, num_patches=100)).run()
    first, second, *_ = tested.plans
    assert (works([first, second]), first.slots, len(second.slots)) == ([256, 144], b"", 4)


def test_the_same_picture_in_many_requests_is_encoded_once_for_each_salt_and_not_for_a_computed_prefix():
    tested = harness(shares_prefixes=False).add(*[with_picture(number, 1, n=2) for number in range(4)]).run()
    assert tested.worker.media.num_encoded == 1
    salts = ["a", "b", None, "a"]
    tested = harness().add(*[with_picture(number, 1, cache_salt=salt) for number, salt in enumerate(salts)]).run()
    tested.add(with_picture(5, 1, cache_salt="b")).run()
    assert tested.worker.media.num_encoded == 3
    tested = harness(media=replace(PLAN, num_rows=6)).add(with_picture(1, 1)).run()
    tested.add(with_picture(2, 2))  # takes the room of the first one's rows
    tested.run()
    encoded = tested.worker.media.num_encoded
    tested.add(with_picture(3, 1)).run()
    assert tested.worker.media.num_encoded == encoded == 2


def test_another_picture_or_other_rows_of_the_same_one_share_only_what_stands_before_them():
    tested = harness()
    for number, picture in enumerate([1, 1, 2]):
        tested.add(with_picture(number, picture)).run()
    assert [tested.num_cached(number) for number in range(3)] == [0, 12, 4]
    tested = harness()
    tokens = [7] * 4 + [PLACEHOLDER] * 4 + [8] * 4 + [PLACEHOLDER] * 4 + [9]
    tested.add(prompt(1, tokens, media=[medium(1, (4, 4), (12, 4))])).run()
    tested.add(prompt(2, tokens, media=[medium(1, (4, 4)), medium(2, (12, 4))]))
    tested.add(prompt(3, tokens, media=[medium(1, (12, 4))])).run()
    assert [tested.num_cached(number) for number in (1, 2, 3)] == [0, 12, 4]


@for_each("before", [0, 5], ids=["waiting", "running"])
def test_a_half_encoded_picture_of_an_aborted_request_is_dropped_at_once(before):
    tested = harness(max_num_batched_tokens=10).add(with_picture(1, 1, before=before, num_patches=400))
    tested.step()
    entries = tested.scheduler.encoder.entries
    assert entries.num_taken == 6 and entries.half_encoded
    tested.abort(128)
    plan = tested.plan()
    assert plan and list(values(plan.dropped_entries)) == [0] and not plan.slots
    assert (entries.num_taken, entries.half_encoded) == (0, None)


def test_a_half_encoded_picture_goes_on_for_another_request_that_has_it():
    tested = harness(max_num_batched_tokens=10)
    tested.add(with_picture(1, 1, num_patches=400), with_picture(2, 1, num_patches=400))
    tested.step(2)
    tested.abort(128)
    tested.run()
    assert tested.ended(2).finish_reason == "length" and tested.worker.media.num_encoded == 1


WHOLE = {"max_num_batched_tokens": 12, "max_num_seqs": 5, "media": replace(PLAN, has_whole_spans=True)}


@for_each("asked, sentence, options", [
    (with_picture(1, 1, rows=21), "21 rows, and memory keeps 20.*mm_cache", {}),
    (with_picture(1, 1, num_patches=1001), "1,001 patches, and the encoder takes 1,000.*fewer frames", {}),
    (with_picture(1, 1, num_patches=501), "more than 500 patches.*smaller", {}),
    (prompt(1, [1, 2], media=[medium(1, (1, 2))]), "one behind the other", {}),
    (prompt(1, [1, 2], media=[medium(1, (1, 1)), medium(2, (0, 1))]), "one behind the other", {}),
    (prompt(1, [1, 2], media=[medium(1)]), "one behind the other", {}),
    (with_picture(1, 1), "sees none", {"media": None}),
    (with_picture(1, 1, rows=9), "9 rows that are computed in one step, beside a token of each of 5", WHOLE),
])  # fmt: skip
def test_what_can_never_be_encoded_is_refused_with_what_to_do(asked, sentence, options):
    ended = harness(**options).add(asked).ended(1)
    assert ended.error_code == 400
    assert re.search(sentence, ended.error_msg), ended.error_msg


def test_no_prompt_enters_before_there_are_blocks_for_the_rows_that_see_one_another():
    groups = GroupPlan("full", 1, 1, 64), GroupPlan("window", 1, 1, 8, window=10)
    tested = harness(**WHOLE, groups=groups).add(prompt(1, [9] * 10, max_tokens=60), prompt(2, [7] * 21, max_tokens=1))
    while tested.ended(2) is None:
        tested.step()
    tested.add(with_picture(3, 1, before=20, rows=8)).run()
    assert tested.tokens(3) == answer(with_picture(3, 1, before=20, rows=8), 0, 128)[0]


def test_rows_that_see_one_another_are_computed_in_one_step_beside_streams_too():
    tested = with_stream(**WHOLE | {"max_num_seqs": 4})
    tested.add(with_picture(2, 1, before=3, rows=9, num_patches=1)).run()
    assert [rows.count for plan in tested.plans for rows in plan.media] == [9]
