"""How long a model that dies waits until it is started again: longer in a row, and at once after a long good life."""

import asyncio
from types import SimpleNamespace

import pytest

from penstock.frontend.daemon import model as daemon_model
from penstock.frontend.daemon.model import Model
from penstock.protocol.errors import EngineDeadError

SETTINGS = SimpleNamespace(name="m", keep_alive=float("inf"), preload=False)


def session():
    client = SimpleNamespace(error=None, close=lambda: None, on_death=None)
    return SimpleNamespace(client=client, adapters=SimpleNamespace(loaded={}))


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
        model = Model(SETTINGS, opened)
        for _ in range(4):
            with pytest.raises(EngineDeadError):
                await model.ready()
        alive = await model.ready()
        model._ready_since -= life
        if ends_by == "unloading":
            await model.unload()
        else:
            model._died(alive.client, EngineDeadError("x"))
        assert (model._pause() > 0) is pauses

    asyncio.run(live())
