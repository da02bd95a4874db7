"""How long a model that dies waits until it is started again: longer in a row, and at once after a long good life."""

import asyncio
from types import SimpleNamespace

import pytest

from penstock.frontend.daemon import model as daemon_model
from penstock.frontend.daemon.model import DaemonModel
from penstock.protocol.errors import EngineDeadError

SETTINGS = SimpleNamespace(name="m", keep_alive=float("inf"), preload=False)


def session():
    transport = SimpleNamespace(error=None, close=lambda: None, on_death=None)
    return SimpleNamespace(transport=transport, adapters=SimpleNamespace(loaded={}))


@pytest.mark.parametrize("ends_by", ["unloading", "death"])
@pytest.mark.parametrize("life, pauses", [(0.0, True), (1e6, False)])
def test_deaths_before_a_long_life_are_not_in_a_row_with_those_after_it(monkeypatch, ends_by, life, pauses):
    monkeypatch.setattr(daemon_model, "_FIRST_PAUSE", 0.001)
    deaths = iter([True] * 4)

    async def opened(model):
        if next(deaths, False):
            raise EngineDeadError("x")
        return session()

    async def live():
        model = DaemonModel(SETTINGS, opened)
        for _ in range(4):
            with pytest.raises(EngineDeadError):
                await model.ready()
        alive = await model.ready()
        model._ready_since -= life
        if ends_by == "unloading":
            await model.unload()
        else:
            model._died(alive.transport, EngineDeadError("x"))
        assert (model._pause() > 0) is pauses

    asyncio.run(live())


def test_a_load_for_nobody_comes_to_its_end_where_nothing_is_kept():
    """A start that waited for the session itself would load it again and again."""
    loads = []

    async def opened(model):
        loads.append(model)
        return session()

    async def live():
        model = DaemonModel(SimpleNamespace(name="m", keep_alive=0.0, preload=True), opened)
        await asyncio.wait_for(asyncio.gather(model.load_once(), model.load_once()), 10)
        while model.is_held:
            await asyncio.sleep(0)
        assert model.state == "unloaded" and len(loads) == 1

    asyncio.run(live())
