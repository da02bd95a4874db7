"""Who waits in which order, and who gives way."""

from builders.engine_harness import prompt

from penstock.engine.queue import WaitingQueue, victim
from penstock.engine.request import Request, Sequence


def sequence(arrival: int, priority: int = 0, *, is_long: bool = False) -> Sequence:
    request = Request(prompt(arrival, [1, 2], priority=priority), 128, b"")
    return Sequence(request, 0, arrival, is_long)


def drained(queue: WaitingQueue, **options) -> list[int]:
    order = []
    while (first := queue.first(**options)) is not None:
        queue.pop(first)
        order.append(first.rank[1])
    return order


def queue_of(*sequences: Sequence) -> WaitingQueue:
    queue = WaitingQueue()
    for each in sequences:
        queue.push(each)
    return queue


def test_first_come_first_served_within_a_priority():
    queue = queue_of(sequence(1, 5), sequence(2, 0), sequence(3, 5), sequence(4, -1), sequence(5, 0))
    assert drained(queue) == [4, 2, 5, 1, 3]


def test_a_sequence_that_comes_back_goes_before_all_that_are_younger():
    queue = queue_of(sequence(2), sequence(3))
    queue.push(sequence(1))
    assert drained(queue) == [1, 2, 3]


def test_short_prompts_pass_long_ones_only_while_the_gate_for_those_is_shut():
    queue = queue_of(sequence(1, is_long=True), sequence(2), sequence(3, is_long=True))
    assert queue.first().rank[1] == 1
    assert drained(queue, including_long=False) == [2]
    assert drained(queue) == [1, 3]


def test_one_that_ended_while_it_waited_is_passed_over_and_not_counted():
    gone = sequence(1)
    queue = queue_of(gone, sequence(2))
    gone.has_ended = True
    queue.leave(gone)
    assert len(queue) == 1
    assert drained(queue) == [2]
    assert len(queue) == 0


def test_the_lowest_priority_gives_way_and_among_those_the_youngest():
    sequences = [sequence(1, 3), sequence(2, 9), sequence(3, 9), sequence(4, 0)]
    assert victim(sequences).rank == (9, 3)
