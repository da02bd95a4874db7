"""How many drafts a step checks: as many as its own table of costs says are worth it, and none where none are."""

import itertools
import random
from collections.abc import Callable
from itertools import takewhile

import numpy
from builders.cases import for_each
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.protocol.messages import NewSlot, SamplingParams
from penstock.protocol.wire import column
from penstock.worker.drafting.drafter import Drafter
from penstock.worker.drafting.models.draft_heads import WorthFollowing
from penstock.worker.drafting.proposer import Guess, Look, Proposer
from penstock.worker.drafting.step_costs import StepCosts, usual_costs
from penstock.worker.drafting.suffix import Suffix
from penstock.worker.drafting.worth import Candidate, Worth

MOST = 15  # drafts of a row


class Oracle:
    """Knows what comes, and is right about so much of it; says each time how likely that is."""

    name = "oracle"

    def __init__(self, text: list[int], share: float, said: float) -> None:
        self.text, self.share, self.said = text, share, said
        self.num_looks = 0
        self.source = random.Random(1)

    def enter(self, slot: int, new: NewSlot) -> None: ...

    def leave(self, slot: int, tokens: numpy.ndarray) -> None: ...

    def guess(self, looks: list[Look]) -> list[Guess]:
        self.num_looks += len(looks)
        return [self._guess(look) for look in looks]

    def _guess(self, look: Look) -> Guess:
        coming = self.text[len(look.tokens) : len(look.tokens) + look.most]
        drafts = [token if self.source.random() < self.share else -2 for token in coming]
        return Guess(drafts, [self.said] * len(drafts))


def drafting(proposers: list[Proposer], look: float = 0.0, always: str | None = None) -> Drafter:
    """A drafter on whose clock every look takes so many seconds."""
    times = itertools.count(0.0, look)
    return Drafter(proposers, always, clock=lambda: next(times))


class Played:
    """What became of a text of which each of some rows is given what is drafted and right, and a token."""

    def __init__(self, drafter: Drafter, text: list[int], start: int = 1, num_rows: int = 1, seconds=None) -> None:
        cost = seconds or (lambda num_tokens: StepCosts().of(1, num_tokens - 1)[-1])
        tokens, ends = numpy.array(text, numpy.int32), dict.fromkeys(range(num_rows), start)
        self.num_steps = self.num_drafts = 0
        self.seconds = 0.0
        while looks := [Look(row, tokens[:end], max(1, min(MOST, len(text) - end - 1))) for row, end in ends.items()]:
            due = [look for look in looks if drafter.take_turn(look.slot)]
            found = dict(zip((look.slot for look in due), drafter.drafts(due, len(looks)) if due else []))
            for look in looks:
                drafts = found.get(look.slot, [])
                assert len(drafts) <= look.most
                end = len(look.tokens)
                right = next((n for n, draft in enumerate(drafts) if draft != text[end + n]), len(drafts))
                ends[look.slot] = end + right + 1
            num_drafts = sum(map(len, found.values()))
            took = cost(len(looks) + num_drafts)
            drafter.learn(len(looks), len(looks) + num_drafts, took)
            self.seconds += took
            self.num_drafts += num_drafts
            self.num_steps += 1
            ends = {row: end for row, end in ends.items() if end < len(text)}
        self.alone = (len(text) - start) * cost(num_rows)

    @property
    def gain(self) -> float:
        return self.alone / self.seconds


def random_text(length: int, seed: int = 3) -> list[int]:
    return random.Random(seed).choices(range(10**6), k=length)


TEXT = random_text(600)

chances = st.lists(st.floats(0.01, 1.0), max_size=MOST).map(lambda chances: numpy.cumprod(chances).tolist())
times = st.lists(st.tuples(st.integers(1, 200), st.floats(0.001, 10.0)), max_size=50)


@settings(max_examples=50)
@given(st.lists(chances, min_size=1, max_size=20), times)
def test_no_number_of_drafts_would_give_more_tokens_for_its_cost(chances, times):
    worth, num_rows = Worth(), len(chances)
    for _ in range(3):
        worth.costs.learn(num_rows, num_rows, 1.0)
    for num_tokens, seconds in times:
        worth.costs.learn(num_rows, num_rows + num_tokens, seconds)
    candidates = [Candidate(list(range(len(each))), each) for each in chances]
    drafts = worth.cut(candidates, num_rows)
    ranked = sorted((chance for each in chances for chance in each), reverse=True)
    costs = worth.costs.of(num_rows, len(ranked))
    rates = [(num_rows + sum(ranked[:count])) / costs[count] for count in range(len(ranked) + 1)]
    count = sum(map(len, drafts))
    assert all(found == each.tokens[: len(found)] for found, each in zip(drafts, candidates))
    assert rates[count] >= max(rates) - 1e-9 or (not count and max(rates) <= rates[0] * 1.03)
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in itertools.pairwise(costs))


@for_each("num_rows", [1, 16])
@for_each("true", [(1.0, 0.02), (1.0, 0.3), (1.0, 1.0)], ids=["cheap", "dear", "in proportion"])
def test_what_tokens_cost_is_learned_from_steps_of_a_noisy_machine_that_gets_slower(num_rows, true):
    source, costs = random.Random(4), StepCosts()
    base, each = true
    for step in range(1_000):
        num_drafts = source.choice([0, 0, 1, 3, 7, 15])
        seconds = 0.02 * (base + each * num_drafts) * source.gauss(1, 0.05) * (1 + step / 1_000)
        costs.learn(num_rows, num_rows + num_drafts, seconds * (20 if source.random() < 0.01 else 1))
    found = costs.of(num_rows, 15)
    for num_drafts in (3, 7, 15):
        expected = (base + each * num_drafts) / base
        assert abs(found[num_drafts] / found[0] / expected - 1) < 0.2, (num_drafts, found[num_drafts] / found[0])


@for_each("share", [0.1, 0.5, 0.9])
@for_each("said", [0.2, 1.0])
def test_what_a_proposer_says_is_corrected_by_how_often_it_is_right(share, said):
    oracle = Oracle(TEXT, share, said)
    drafter = drafting([oracle])
    Played(drafter, TEXT)
    look = Look(0, numpy.array(TEXT[:5], numpy.int32), MOST)
    chances = drafter.worth.weigh(look, oracle.name, Guess([1, 2], [said, said])).chances
    assert abs(chances[0] - share) < 0.15
    assert abs(sum(chances) - share - share**2) < 0.3


def test_a_token_that_was_drafted_in_vain_is_less_likely_until_it_was_right():
    worth, text = Worth(), [1]

    def chances(drafts: list[int], *came: int) -> list[float]:
        look = Look(0, numpy.array(text, numpy.int32), 2)
        found = worth.weigh(look, "any", Guess(drafts, [0.9, 0.9])).chances
        text.extend(came)
        worth.settle(Look(0, numpy.array(text, numpy.int32), 2))
        return found

    for _ in range(3):
        chances([5, 9], 5, 7)
    (known, in_vain), (_, other) = chances([5, 9], 5, 9), chances([5, 8], 5, 7)
    assert in_vain < 0.2 * known < 0.3 * other
    assert chances([5, 9]) == chances([5, 6])


def test_a_sequence_is_believed_as_far_as_its_own_drafts_were_right():
    worth, look = Worth(), numpy.array([1, 5], numpy.int32)

    def chance(slot: int, draft: int) -> float:
        [found] = worth.weigh(Look(slot, look[:1], 1), "any", Guess([draft], [0.9])).chances
        worth.settle(Look(slot, look, 1))
        return found

    for draft in range(100, 120):
        wrong, right = chance(0, draft), chance(1, 5)
    assert 1.5 * wrong < chance(2, 5) < 0.8 * right


def in_proportion(num_tokens: int) -> float:
    return 0.02 * num_tokens


def named(name: str, *oracle: float) -> Oracle:
    found = Oracle(TEXT, *oracle)
    found.name = name
    return found


# Proposers, how a text of so many rows is played, and the least gain.
GAINS: dict[str, tuple[list[Oracle], dict, float]] = {
    **{f"{rows} rows, sure and wrong": ([named("any", 0.0, 1.0)], {"num_rows": rows}, 0.98) for rows in (1, 4, 16)},
    "tokens that cost as much in any step": ([named("any", 0.9, 0.9)], {"seconds": in_proportion}, 0.93),
    "sometimes right": ([named("any", 0.3, 0.9)], {}, 1.2),
    "often right": ([named("any", 0.6, 0.9)], {}, 1.7),
    "always right": ([named("any", 1.0, 0.9)], {}, 8),
    "a braggart and one that is right": ([named("braggart", 0.05, 1.0), named("modest", 0.9, 0.4)], {}, 3),
}


@for_each("proposers, played, least", GAINS.values(), ids=GAINS)
def test_right_drafts_make_the_text_cheaper_and_wrong_ones_cost_nearly_nothing(proposers, played, least):
    found = Played(drafting(proposers), TEXT, **played)
    assert found.gain > least
    assert least > 1 or found.num_drafts < 200 * played.get("num_rows", 3)


@for_each("look, share, least, most", [
    (1e-5, 0.0, 590, 600),  # next to nothing, so it may be in vain
    (5e-4, 0.0, 200, 320),
    (5e-3, 0.0, 30, 70),
    (1e-2, 0.2, 30, 120),  # as long as half a step, and a fifth of a token is foreseen
    (1e-3, 0.9, 60, 300),  # nine tokens are
])  # fmt: skip
def test_looks_get_rare_where_they_take_more_than_they_save_and_a_hundredth_of_the_time(look, share, least, most):
    oracle = Oracle(TEXT, share, 0.5)
    Played(drafting([oracle], look), TEXT, seconds=lambda num_tokens: 0.02)
    assert least <= oracle.num_looks <= most


def test_a_right_guess_makes_looks_frequent_again_at_once():
    oracle = Oracle(TEXT, 0.0, 0.5)
    drafter = drafting([oracle], 5e-3)
    Played(drafter, TEXT[:300], seconds=lambda num_tokens: 0.02)
    oracle.share = 1.0
    played = Played(drafter, TEXT, start=300, seconds=lambda num_tokens: 0.02)
    assert played.num_steps < 100


def test_a_method_that_was_named_drafts_whatever_it_finds():
    oracle = Oracle(TEXT, 0.0, 0.1)
    played = Played(drafting([oracle], always=oracle.name), TEXT)
    assert played.num_drafts > 580 * MOST


def test_what_another_proposer_finds_has_to_pay_where_a_method_was_named():
    silent = Oracle([], 0.0, 0.5)
    played = Played(drafting([named("replay", 0.0, 1.0), silent], always=silent.name), TEXT)
    assert played.gain > 0.98 and played.num_drafts < 200


def test_an_edited_text_costs_less_than_half_and_one_without_repetition_no_more_than_before():
    text = random_text(400)
    edited = [token if place % 50 else 7 for place, token in enumerate(text)]
    for whole, start, least in ((text + edited, 400, 3), (TEXT, 1, 0.99)):
        drafter = drafting([Suffix()])
        drafter.enter(0, NewSlot(0, column(whole[:start]), start, 0, SamplingParams(), 7, 0))
        assert Played(drafter, whole, start).gain > least


def test_drafts_that_others_work_made_slow_once_are_tried_again():
    worth, table = Worth(), usual_costs(16, 128)
    candidates = [Candidate(list(range(8)), [0.99**number for number in range(1, 9)])] * 16

    def drafted(steps: int, slower: float = 1.0) -> int:
        total = 0
        for _ in range(steps):
            count = sum(map(len, worth.cut(candidates, 16)))
            worth.costs.learn(16, 16 + count, slower * table[count])
            total += count > 0
        return total

    worth.costs.learn(16, 16, table[0])
    for _ in range(6):
        worth.costs.learn(16, 144, 8 * table[128])  # the machine is busy
    assert drafted(40) == 0
    assert drafted(300) > 200


@for_each("own_seconds, is_paid", [(0.3, True), (0.7, False)])
def test_heads_follow_a_sequence_while_their_drafts_save_more_than_they_take(own_seconds, is_paid):
    """Of drafts of which every second one is accepted, in steps of a second."""
    worth = WorthFollowing()
    worth.learn_step(4, 4.0)
    worth.learn_own(4, 4 * own_seconds)

    def num_followed(num_sequences: int, is_right: Callable[[int], bool]) -> int:
        """How many of their 100 steps each sequences are followed."""
        counts = (lambda step: worth.count(0, is_right(step)) for _ in range(num_sequences) if worth.enter(0))
        return sum(sum(takewhile(bool, map(count, range(100)))) for count in counts)

    share = num_followed(1_000, lambda step: step % 2 == 1) / 100_000
    assert share == 1 if is_paid else share < 0.01
    num_followed(100, lambda step: True)
    assert num_followed(100, lambda step: True) == 10_000  # once they are right, all are followed again


def test_a_model_that_costs_what_it_saves_is_seldom_asked():
    """Its drafts are always right and take 0.9 of a step each; checking one takes 0.2."""
    text = random_text(3000)
    oracle = Oracle(text, 1.0, 1.0)
    played = Played(drafting([oracle], 0.9 * MOST), text, seconds=lambda num_tokens: 0.8 + 0.2 * num_tokens)
    assert oracle.num_looks < 130 and played.num_steps > 1_500
