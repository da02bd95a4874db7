"""The disk below the pool of blocks: what an earlier run has computed is fetched while others go on, or computed.

The worker of `Harness` fills fetched blocks and reads stored ones as late as it may, and ends the run when a row reads
anything but its own history. `test_engine_properties.py` does the same with whatever comes.
"""

from types import SimpleNamespace

from builders.cases import for_each
from builders.engine_harness import TOKENS as PREFIX
from builders.engine_harness import Harness, medium, prompt

from penstock.engine.memory.disk_fetches import PATIENCE
from penstock.protocol.layer_groups import BlocksFetched, GroupPlan
from penstock.protocol.media import MediaPlan
from penstock.protocol.messages import Prompt

FULL, WINDOW, STATES = GroupPlan("full", 1, 1, 400), GroupPlan("window", 1, 1, 120, 10), GroupPlan("state", 1, 1, 40)
MIXES = {"full": (FULL,), "full and window": (FULL, WINDOW), "full and states": (FULL, STATES)}
SEES = {"media": MediaPlan(20, 1, 4, 1000, 500)}


def harness_of(*groups: GroupPlan, is_slow: bool = False, **options) -> Harness:
    """With a disk, which answers only when nothing else is left to do if it `is_slow`."""
    harness = Harness(**{"groups": groups or (FULL,), "max_model_len": 600, "num_disks": 1, **options})
    if is_slow:
        harness.disk.answer_some = lambda scheduler: None
    return harness


def restarted(harness: Harness, *groups: GroupPlan, **options) -> Harness:
    """Another engine, with the same disk, which loses nothing."""
    fresh = harness_of(*groups, **options)
    fresh.disk.losses = 0.0
    fresh.disk.begin_with(harness.disk, fresh.scheduler)
    return fresh


def visited() -> Harness:
    """One whose disk has the prefix."""
    harness = harness_of()
    harness.visit(1, PREFIX)
    return harness


def answer_all(harness: Harness) -> None:
    while harness.disk.answer(harness.scheduler):
        pass


def step_while_possible(harness: Harness) -> None:
    while harness.plan() is not None:
        harness.finish()


@for_each("mix", MIXES)
@for_each("num_disks", [1, 2])
def test_a_prefix_of_an_earlier_run_is_not_computed_again_and_only_its_own_salt_finds_it(mix, num_disks):
    groups = MIXES[mix]
    before = harness_of(*groups, num_disks=num_disks)
    before.visit(1, PREFIX, cache_salt="a")
    harness = restarted(before, *groups, num_disks=num_disks)
    assert harness.visit(1, PREFIX, cache_salt="b") == harness.visit(2, PREFIX) == 0
    assert harness.visit(3, PREFIX, cache_salt="a") == 196
    assert harness.visit(4, [*PREFIX, 1, 2, 3], cache_salt="a") >= 196, "it lies in the pool now"
    assert harness.scheduler.stats().fetched_blocks >= 49


def test_others_go_on_while_a_prefix_is_fetched_and_those_with_the_same_one_wait_for_it():
    harness = restarted(visited(), is_slow=True)
    harness.add(prompt(1, PREFIX), prompt(2, [*PREFIX, 5]), prompt(3, [9] * 30)).step(3)
    stats = harness.scheduler.stats()
    assert (stats.running, stats.waiting) == (1, 2)
    harness.run()
    fetches = [fetch for plan in harness.plans if plan.disk is not None for fetch in plan.disk.fetches]
    assert sum(len(fetch.block_ids) // 4 for fetch in fetches) == 50, "each block once"
    assert (harness.num_cached(1), harness.num_cached(2)) == (196, 200)


def test_a_disk_that_brings_nothing_for_long_is_not_waited_for_and_what_it_brings_later_is_found():
    before, other = visited(), PREFIX[::-1]
    before.visit(2, other)
    harness = restarted(before, is_slow=True)
    harness.add(prompt(1, PREFIX)).step()
    assert harness.scheduler.arrivals.patience == PATIENCE and not harness.scheduler.running
    harness.now += PATIENCE
    assert harness.scheduler.arrivals.patience == 0
    harness.scheduler.arrivals.let_in_late()
    assert harness.scheduler.arrivals.patience is None
    step_while_possible(harness)
    assert harness.ended(1) is not None and harness.num_cached(1) == 0
    harness.add(prompt(2, other)).step(2)
    assert harness.scheduler.stats().running == 1, "nobody waits for that disk until it has answered"
    harness.run()
    assert harness.scheduler.stats().fetched_blocks > 0


def test_a_prefix_that_comes_in_parts_is_waited_for_while_it_comes_and_each_part_is_found():
    harness, heard = restarted(visited(), is_slow=True), []
    harness.add(prompt(1, PREFIX)).step()
    arrivals = harness.scheduler.arrivals
    harness.disk.answer(SimpleNamespace(arrivals=SimpleNamespace(take_from_disk=heard.append)))
    are_there = b"".join(answer.are_there for answer in heard)
    parts = [BlocksFetched(0, heard[0].number, part) for part in (are_there[:10], are_there[10:30], are_there[30:])]
    harness.now += 0.6 * PATIENCE
    arrivals.take_from_disk(parts[0])
    harness.now += 0.6 * PATIENCE
    arrivals.let_in_late()
    assert arrivals.patience is not None, "a part has come meanwhile"
    harness.now += PATIENCE
    arrivals.let_in_late()
    arrivals.take_from_disk(parts[1])
    step_while_possible(harness)
    assert harness.num_cached(1) == 120
    arrivals.take_from_disk(parts[2])
    harness.run()


def test_what_is_missing_on_disk_is_computed_and_written_again():
    before = visited()
    gone = sorted(before.disk.kept)[7]
    lost = before.disk.kept.pop(gone)
    harness = restarted(before)
    assert harness.visit(1, PREFIX) < 196
    harness.run()
    assert harness.disk.kept[gone] == lost


def test_what_a_failed_row_computed_is_removed_from_the_disk():
    harness = restarted(visited())
    harness.add(prompt(1, PREFIX)).step()
    answer_all(harness)
    harness.plan()
    harness.fail()
    harness.run()
    assert harness.ended(1).error_code == 500
    assert harness.add(prompt(2, PREFIX)).plan().new, "it does not wait for the disk"
    harness.finish()
    harness.run()
    assert harness.num_cached(2) == 0


def test_a_short_prefix_and_one_that_is_on_disk_already_are_not_written():
    harness = harness_of()
    harness.visit(1, PREFIX[:100])
    assert harness.disk.num_orders == 0
    harness.visit(2, PREFIX)
    num_orders = harness.disk.num_orders
    harness.visit(3, PREFIX)
    assert harness.disk.num_orders == num_orders > 0


@for_each("is_last", [False, True])
def test_few_blocks_are_held_to_be_written_at_a_time_and_the_rest_follows_or_is_in_the_last_plan(is_last):
    harness = harness_of(GroupPlan("full", 1, 1, 80), is_slow=True).add(prompt(1, PREFIX, max_tokens=2))
    step_while_possible(harness)
    assert sum(map(len, harness.scheduler.cache.disk.held_by(0))) == 10
    if is_last:
        plan = harness.scheduler.last_plan()
        harness.disk.take(plan.disk)
        answer_all(harness)
        assert not plan.slots
    else:
        harness.run()
    assert len(harness.disk.kept) == 50 and harness_of().scheduler.last_plan() is None


def shown(request_id: int, picture: int, **params) -> Prompt:
    """A question about a picture, whose rows are the first tokens."""
    return prompt(request_id, [500] * 6 + [8] * 5, media=[medium(picture, (0, 6), num_patches=10)], **params)


def seen(*, num_disks: int = 1) -> Harness:
    """One whose disk has the rows of two pictures, of which the first is salted."""
    return harness_of(**SEES, num_disks=num_disks).add(shown(1, 1, cache_salt="a"), shown(2, 2)).run()


def media_of(harness: Harness) -> tuple[int, int, int]:
    stats = harness.scheduler.stats()
    return stats.encoded_media, stats.fetched_media, stats.kept_media


@for_each("num_disks", [1, 2])
def test_a_picture_of_an_earlier_run_is_not_encoded_again_and_only_its_own_salt_finds_it(num_disks):
    before = seen(num_disks=num_disks)
    assert media_of(before) == (2, 0, 2)
    harness = restarted(before, **SEES, num_disks=num_disks)
    harness.add(shown(1, 1, cache_salt="a"), shown(2, 2), shown(3, 2)).run()
    assert media_of(harness) == (0, 2, 2)
    harness.add(shown(4, 1, cache_salt="b"), shown(5, 1)).run()
    assert media_of(harness) == (2, 2, 4)


def test_a_picture_that_is_gone_or_comes_too_late_from_the_disk_is_encoded():
    harness = restarted(seen(), **SEES, is_slow=True)
    harness.disk.losses = 1.0
    harness.add(shown(1, 1, cache_salt="a")).run()
    harness.disk.losses = 0.0
    harness.add(shown(2, 2)).step()
    assert harness.plan() is None and harness.scheduler.arrivals.patience == PATIENCE
    harness.now += PATIENCE
    harness.scheduler.arrivals.let_in_late()
    step_while_possible(harness)
    assert harness.ended(2) is not None and harness.scheduler.arrivals.patience is None
    assert media_of(harness.run()) == (2, 0, 2)


def test_a_picture_whose_request_is_aborted_on_its_way_is_still_on_the_disk():
    harness = restarted(seen(), media=MediaPlan(6, 1, 4, 1000, 500), is_slow=True)
    harness.add(shown(1, 1, cache_salt="a")).step()
    harness.abort(128)
    harness.add(shown(2, 2)).run()  # takes its room
    harness.add(shown(3, 1, cache_salt="a")).run()
    assert media_of(harness) == (0, 2, 2)


def test_a_running_prompt_whose_picture_is_on_its_way_is_not_preempted_for_others():
    harness = restarted(seen(), **SEES, is_slow=True, max_num_seqs=1)
    asked = prompt(2, [3] * 5 + [500] * 6, media=[medium(2, (5, 6), num_patches=10)])
    harness.add(asked, prompt(3, [1, 2, 3])).step()
    assert harness.plan() is None and harness.scheduler.stats().running == 1
    assert media_of(harness.run()) == (0, 1, 2) and harness.scheduler.stats().preemptions == 0


def test_rows_of_a_failed_request_are_removed_from_the_disk():
    harness = harness_of(**SEES)
    harness.add(shown(1, 1)).plan()
    answer_all(harness)
    assert harness.scheduler.stats().kept_media == 1
    harness.fail()
    assert media_of(harness.run()) == (1, 0, 0) and not harness.disk.kept_rows
