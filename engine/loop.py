"""The engine's loop: takes in messages, plans ahead, and publishes sampled tokens.

Two steps are in flight, so the workers never wait for the engine: it plans the next one while one runs. With nothing to
do, it blocks on its inbox. All decisions are the scheduler's.
"""

from msgspec.structs import replace

from ..protocol.adapter_messages import AboutAdapters
from ..protocol.layer_groups import AboutDisk
from ..protocol.messages import Abort, Drafts, EngineInbox, Generate, GrammarsReady, Started, StepResult, Stop, Tokens
from ..protocol.processes.faults import passing
from ..protocol.processes.sockets import Inbox, Outbox
from ..protocol.processes.trace import Trace
from ..protocol.stats import StatsQuery
from .event_publisher import EventPublisher
from .publisher import TokenBuffer
from .scheduler import Scheduler
from .workers import Workers

STEPS_IN_FLIGHT = 2
# It takes in at most this many sequences between two plans: a flood of requests must not keep the workers waiting.
_MOST_BETWEEN_PLANS = 64


class Loop:
    def __init__(
        self,
        scheduler: Scheduler,
        inbox: Inbox[EngineInbox],
        workers: Workers,
        detokenizer: Outbox,
        frontend: Outbox,
        trace: Trace,
        events: EventPublisher | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.events = events
        self.inbox = inbox
        self.workers = workers
        self.detokenizer = detokenizer
        self.frontend = frontend
        self.trace = trace
        self._plan = passing("engine.plan", trace.timed("plan", scheduler.plan))
        self._finish = trace.timed("finish", self._finished, step=lambda result: result.step)
        self.held = TokenBuffer()

    def run(self) -> None:
        """Run until a `Stop` comes, and pass it on to the workers and the detokenizer."""
        while self._take_in():
            self._plan_ahead()
            self._publish(self.scheduler.take_ends())
            if self.events is not None:
                self.events.flush()
        if (plan := self.scheduler.last_plan()) is not None:
            self.workers.send(plan)
        self.trace.flush()
        self.workers.send(Stop())
        self.detokenizer.send(Stop())

    def _take_in(self) -> bool:
        """Wait for a message and take in all that have come; False after a `Stop`."""
        wait = self._patience()
        taken = 0
        while taken < _MOST_BETWEEN_PLANS:
            if (message := self.inbox.receive(wait)) is None:
                break
            if isinstance(message, Stop):
                return False
            self._take(message)
            taken += _weight(message)
            wait = 0
        if self.scheduler.arrivals.patience == 0:
            self.scheduler.arrivals.let_in_late()
        return True

    def _patience(self) -> float | None:
        """Seconds to wait for a message; None: until one comes."""
        patience = self.scheduler.arrivals.patience
        if self.events is None or (until_expiry := self.events.patience) is None:
            return patience
        return until_expiry if patience is None else min(patience, until_expiry)

    def _take(self, message: EngineInbox) -> None:
        match message:
            case StepResult():
                self.workers.note_answer(message)
                self._publish(self._finish(message))
            case Drafts():
                self.scheduler.take_drafts(message)
                self._send_mask()
            case Generate(prompts):
                for prompt in prompts:
                    self.scheduler.add(prompt)
            case Abort(sequence_ids):
                self.scheduler.abort(sequence_ids)
            case StatsQuery(query, sequence_ids):
                generated = [self.scheduler.num_generated(each) for each in sequence_ids]
                self.frontend.send(replace(self.scheduler.stats(), query=query, generated=generated))
            case GrammarsReady():
                self.scheduler.arrivals.let_in_held()
            case message if isinstance(message, AboutDisk):
                self.scheduler.arrivals.take_from_disk(message)
            case message if isinstance(message, AboutAdapters):
                sequences = self.scheduler.sequences.values()
                self.scheduler.adapters.take(message, (each.request.adapter for each in sequences))

    def _plan_ahead(self) -> None:
        while len(self.scheduler.in_flight) < STEPS_IN_FLIGHT:
            if (plan := self._plan()) is None:
                return
            if started := self.scheduler.admission.started:
                self.frontend.send(Started(started))
                self.scheduler.admission.started = []
            self.workers.send(plan)
            self._send_mask()

    def _finished(self, result: StepResult) -> Tokens:
        tokens = self.scheduler.finish(result)
        # First of all: the workers may be waiting for it in the middle of their step.
        self._send_mask()
        return tokens

    def _send_mask(self) -> None:
        """Send the masks of the oldest step in flight, once; all tokens before it are known."""
        if (frame := self.scheduler.take_mask()) is not None:
            self.workers.send(frame)

    def _publish(self, tokens: Tokens | None) -> None:
        if tokens is not None:
            for message in self.held.take(tokens):
                self.detokenizer.send(message)


def _weight(message: object) -> int:
    """How many ordinary messages this one counts as."""
    match message:
        case Generate(prompts):
            return sum(prompt.params.n for prompt in prompts)
        case Abort(sequence_ids):
            return len(sequence_ids)
    return 1
