"""The engine's process agrees with the workers on a memory plan, reports that it is ready, and runs the loop."""

import gc
from pathlib import Path

from ..protocol.messages import EngineInbox, GrammarsReady, Ready, Stop
from ..protocol.processes.child import Child, run_child
from ..protocol.processes.heartbeat import Heartbeat, WatchedInbox
from ..protocol.processes.sockets import Outbox
from ..protocol.processes.trace import Trace
from .adapters import AdapterTable
from .admission.limits import Limits
from .event_publisher import EventPublisher
from .grammar.compiler import Compiler
from .grammar.constraints import Constraints
from .grammar.remote import RemoteFollower
from .loop import Loop
from .memory.events import KvEvents
from .scheduler import Scheduler
from .workers import StopRequested, Workers


def main(child: Child) -> None:
    config = child.launch.config
    trace = Trace(config.trace, child.role)
    trace.reached("imports")
    heartbeat = Heartbeat.of(child.role, child.launch.heartbeats)
    inbox = WatchedInbox[EngineInbox](child.directory, "engine", EngineInbox, heartbeat)
    workers = Workers(child.directory, config)
    detokenizer = Outbox(child.directory, "detokenizer")
    try:
        plan = workers.agree(inbox)
    except StopRequested:
        detokenizer.send(Stop())
        return
    max_loras = config.max_loras if config.enable_lora else 0
    adapters = AdapterTable(max_loras, config.tensor_parallel_size, workers.send, child.frontend.send)
    own_inbox = Outbox(child.directory, "engine")
    from_files = (Path(child.launch.tokenizer_folder), plan.vocab_size, lambda: own_inbox.send(GrammarsReady()))
    scheduler = Scheduler(
        Limits.settled(config, plan),
        shares_prefixes=config.enable_prefix_caching,
        adapters=adapters,
        constraints=Constraints(
            Compiler(*from_files), RemoteFollower(*from_files), plan.vocab_size, may_force=not config.logits_processors
        ),
    )
    events = None
    if (published := config.kv_events_config) is not None:
        cache = scheduler.cache
        gathered = KvEvents(cache.groups, cache.block_size, has_token_ids=published.token_ids)
        events = EventPublisher(gathered, published)
    for message in workers.early:
        scheduler.arrivals.take_from_disk(message)
    loop = Loop(scheduler, inbox, workers, detokenizer, child.frontend, trace, events)
    # Imported modules live as long as the process, so garbage collection need not scan them again.
    gc.freeze()
    child.frontend.send(Ready("engine", plan))
    trace.reached("memory plan")
    try:
        loop.run()
    finally:
        if events is not None:
            events.close()


if __name__ == "__main__":
    run_child("engine", main)
