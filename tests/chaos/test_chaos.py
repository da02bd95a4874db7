"""Good clients while everything that can go wrong on a machine does: no request is lost without its cause, nothing that
is not ours is touched, and at the end nothing is left.

The order of faults follows from a seed, which the run prints; `PENSTOCK_CHAOS_SEED=N` repeats it, and
`PENSTOCK_CHAOS_ONLY="kill a process,fill the disk"` takes some of the faults alone. The long one lasts twenty minutes.
"""

import faulthandler
import os
import random
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from builders.chaos.clients import KINDS, Clients, leftovers
from builders.chaos.faults import FAULTS, Fault
from builders.chaos.world import WELL_SECONDS, World
from builders.watching import wait_until

SEED = int(os.environ.get("PENSTOCK_CHAOS_SEED", 0))
ONLY = [name for name in os.environ.get("PENSTOCK_CHAOS_ONLY", "").split(",") if name]


@pytest.mark.soak
@pytest.mark.parametrize("seconds", [float(os.environ.get("PENSTOCK_CHAOS_SECONDS", 1200))])
def test_no_good_request_is_lost_without_its_cause(seconds: float) -> None:
    # In place of the watch over all tests, which this one outlasts; pytest ends it.
    faulthandler.dump_traceback_later(seconds + 600, exit=True)
    chance = random.Random(SEED)
    shared = shared_memory()
    with TemporaryDirectory(prefix="pc") as folder:
        world = World(Path(folder))
        try:
            world.start_daemon()
            world.learn_texts()
            clients = Clients(world, SEED)
            clients.start(KINDS)
            end = time.monotonic() + seconds
            while time.monotonic() < end and not clients.wrong:
                go_through(chance.choice(faults()), world, chance)
            clients.end()
            report(clients)
            assert not clients.wrong, f"seed {SEED}: " + "\n".join(clients.wrong)
            print(world.stop_daemon())
            wait_until(lambda: not world.processes(), f"nothing is left of {world.processes()}", WELL_SECONDS)
            assert not leftovers(world.runtime)
            assert shared_memory() <= shared
            assert not world.changed_canaries()
        finally:
            world.close()


def faults() -> list[Fault]:
    return [fault for fault in FAULTS if not ONLY or fault.name in ONLY]


def go_through(fault: Fault, world: World, chance: random.Random) -> None:
    lasts = chance.uniform(*fault.seconds)
    print(f"{time.strftime('%H:%M:%S')} {fault.name}, {lasts:.1f} s", flush=True)
    if fault.hurts_daemon:
        world.hurt_daemon()
    take_back = fault.begin(world, chance)
    try:
        time.sleep(lasts)
    finally:
        take_back()
        if fault.hurts_daemon:
            world.hurt_daemon()
    wait_until(world.is_well, f"seed {SEED}: all is well after: {fault.name}", WELL_SECONDS)


def shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir() if not path.name.startswith("__KMP_REGISTERED_LIB_")}


def report(clients: Clients) -> None:
    clients.report()
    for cause, number in clients.causes.most_common():
        print(f"{number:>5} × {cause}")
