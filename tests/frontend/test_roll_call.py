"""Asking the children of a tree whether they are there, where the tree ends meanwhile."""

import asyncio
from types import SimpleNamespace

from penstock.frontend.session.tree.roll_call import RollCall


class NobodyAnswers:
    def read(self, role: str) -> SimpleNamespace:
        return SimpleNamespace(answered=0)


def test_whoever_asks_waits_for_nobody_when_the_tree_has_ended(tmp_path):
    roll_call = RollCall(tmp_path, ["engine"], NobodyAnswers())

    async def ask() -> list[str]:
        asking = asyncio.create_task(roll_call.silent(600, lambda role: False))
        await asyncio.sleep(0.05)
        assert not asking.done()
        roll_call.close()
        return await asyncio.wait_for(asking, 30)

    assert asyncio.run(ask()) == ["engine"]
