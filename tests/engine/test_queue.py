"""Who waits in which order, and who gives way."""

from collections import Counter

from builders.cases import for_each
from builders.engine_harness import prompt
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.engine.admission.queue import PATIENCE_STEPS, WaitingQueue, victim
from penstock.engine.decoding.strategy import PlainDecoding
from penstock.engine.request import Request, Sequence

_PLAIN = PlainDecoding({}, None, None, None, None)  # type: ignore[arg-type]  # which is asked, and ends nothing here


class Queue(WaitingQueue):
    """With sequences of any client made for it; their arrival is their name."""

    def made(self, arrival: int, priority: int = 0, client: str = "", *, is_long: bool = False) -> Sequence:
        request = Request(prompt(arrival, [1, 2], priority=priority), 128, b"", self.client(client))
        sequence = Sequence(request, 0, arrival, is_long)
        sequence.decoding = _PLAIN
        return sequence

    def add(self, *given, **options) -> Sequence:
        sequence = self.made(*given, **options)
        self.push(sequence)
        return sequence

    def admit(self, **options) -> Sequence | None:
        if (first := self.first(**options)) is not None:
            self.pop(first)
            first.client.take_slot()
        return first

    def order(self, **options) -> list[int]:
        """In which all would be admitted, if each ended at once."""
        order = []
        while (first := self.admit(**options)) is not None:
            first.client.leave_slot()
            order.append(first.order[1])
        return order


# Who waits, by arrival, priority and client, and in which order they are admitted.
WAITING = {
    "first come, first served within a priority": ([(1, 5), (2, 0), (3, 5), (4, -1), (5, 0)], [4, 2, 5, 1, 3]),
    "one that comes back goes before all that are younger": ([(2,), (3,), (1,)], [1, 2, 3]),
    "clients take turns, and each of them in its own order": (
        [(number, 0, "many") for number in range(6)] + [(6, 0, "few"), (7, 0, "few"), (8, 0, "one")],
        [0, 6, 8, 1, 7, 2, 3, 4, 5],
    ),
    "a priority goes before any turn": (
        [(number, -1, "flood") for number in range(3)] + [(3, 0, "other")], [0, 1, 2, 3]
    ),
}  # fmt: skip


@for_each("rule", WAITING)
def test_the_order_of_those_that_wait_keeps_each_rule(rule):
    waiting, order = WAITING[rule]
    queue = Queue()
    for each in waiting:
        queue.add(*each)
    assert queue.order() == order


def test_short_prompts_pass_long_ones_only_while_their_gate_is_shut_and_places_are_shared_out_evenly():
    queue = Queue()
    for arrival in (1, 2, 3):
        queue.add(arrival, is_long=arrival != 2)
    assert queue.first().order[1] == 1
    assert queue.order(including_long=False) == [2]
    assert queue.order() == [1, 3]
    queue = Queue()
    for arrival in range(40):
        queue.add(arrival, client="long")
    running = [queue.admit() for _ in range(8)]
    for arrival in range(40, 80):
        queue.add(arrival, client="short")
    for _ in range(4):  # of those places that "long" leaves, each becomes one of "short"
        running.pop().client.leave_slot()
        queue.admit()
    assert {name: queue.client(name).num_running for name in ("long", "short")} == {"long": 4, "short": 4}
    for _ in range(20):  # and from then on each has its own again
        queue.client("short").leave_slot()
        assert queue.admit().client is queue.client("short")


def test_what_has_left_a_queue_that_goes_on_is_not_kept():
    queue = Queue()
    stays = [queue.add(0, client="stays"), queue.add(1, client="leaves in part")]
    for name in ("leaves in part", "leaves"):
        for sequence in [queue.add(arrival, client=name) for arrival in range(2, 500)]:
            queue.leave(sequence)
    kept = queue.client("leaves in part").lanes[False]._heap
    assert len(kept) < 50 and stays[1] in [sequence for _, sequence in kept]
    for number in range(500):
        queue.leave(queue.add(1000 + number, client=f"passes by {number}"))
    queue.order()
    assert len(queue) == 0 and all(not turns._listed for turns in queue._turns)


def test_the_lowest_priority_gives_way_then_the_client_with_most_and_of_those_the_youngest():
    queue = Queue()
    assert victim([queue.made(1, 3), queue.made(2, 9), queue.made(3, 9), queue.made(4, 0)]).order == (9, 3)
    sequences = [queue.made(arrival, client="many") for arrival in (1, 2, 3)] + [queue.made(4, client="one")]
    for sequence in sequences:
        sequence.client.take_slot()
    assert [victim(sequences[: 1 + count] + sequences[3:]).order[1] for count in (2, 1)] == [3, 2]


def test_a_client_is_overdue_after_its_patience_with_nothing_running_and_never_with_something():
    queue = Queue()

    def check_patience(waiting: Sequence) -> None:
        """Its patience begins now."""
        for passed, is_overdue in ((0, False), (PATIENCE_STEPS - 1, False), (1, True)):
            queue.num_steps += passed
            assert queue.is_overdue(waiting) == is_overdue

    queue.num_steps = 100
    check_patience(queue.add(1, client="one"))
    last = queue.add(3, client="one")
    queue.add(2, client="one")
    running = queue.admit(), queue.admit()
    for each in running:
        queue.num_steps += 100
        assert not queue.is_overdue(last)
        each.client.leave_slot()
    check_patience(last)


NAMES = ["a", "b", "c", "d", "e"]
events = st.one_of(
    *[st.tuples(st.just("add"), st.sampled_from(NAMES), st.integers(0, 2), st.booleans())] * 3,
    *[st.tuples(st.just("admit"))] * 2,
    st.tuples(st.just("end"), st.integers(0, 99)),
    st.tuples(st.just("give way"), st.integers(0, 99)),
    st.tuples(st.just("leave"), st.integers(0, 99)),
)


class Model:
    """The same rules, written as a search through everything."""

    def __init__(self) -> None:
        self.queue = Queue()
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.names: dict[Sequence, str] = {}
        self.passed: dict[str, Counter] = {name: Counter() for name in NAMES}  # by whom, since it has nothing running
        self.arrivals = 0

    def play(self, event: tuple) -> None:
        match event:
            case "add", name, priority, is_long:
                self.arrivals += 1
                sequence = self.queue.made(self.arrivals, priority, name, is_long=is_long)
                self.names[sequence] = name
                self.wait(sequence)
            case ("admit",):
                self.admit()
            case "leave", number if self.waiting:
                sequence = self.waiting.pop(number % len(self.waiting))
                self.queue.leave(sequence)
            case ("end" | "give way") as kind, number if self.running:
                sequence = self.running.pop(number % len(self.running))
                sequence.client.leave_slot()
                if kind == "give way":
                    self.wait(sequence)

    def wait(self, sequence: Sequence) -> None:
        name = self.names[sequence]
        if not any(self.names[each] == name for each in self.waiting):
            self.passed[name].clear()
        self.waiting.append(sequence)
        self.queue.push(sequence)

    def admit(self) -> None:
        sequence = self.queue.admit()
        assert (sequence is None) == (not self.waiting)
        if sequence is None:
            return
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self.check(sequence)
        self.passed[self.names[sequence]].clear()

    def check(self, admitted: Sequence) -> None:
        name, priority = self.names[admitted], admitted.order[0]
        for each in self.waiting:
            assert each.order[0] >= priority, "a lower priority value goes first"
            assert self.names[each] != name or each.order > admitted.order, "a client's own go in their order"
        idle = {self.names[each] for each in self.waiting if each.order[0] == priority} - {name}
        for other in idle:
            if not self.queue.client(other).num_running:
                self.passed[other][name] += 1
                assert self.passed[other][name] <= 1, f"{name} was admitted twice while {other} had nothing running"
            else:
                self.passed[other].clear()


@settings(max_examples=50)
@given(st.lists(events, min_size=10, max_size=120))
def test_whoever_has_nothing_running_is_passed_once_by_each_other_client_at_most(history):
    model = Model()
    for event in history:
        model.play(event)
    while model.waiting:
        model.admit()
        if model.running:
            model.play(("end", 0))
    assert len(model.queue) == 0
