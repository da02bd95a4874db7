"""Who gives way where all places are taken, by how long each has kept the server waiting."""

import asyncio

import pytest

from penstock.frontend.http.connections.open_connections import OpenConnections


class Connection:
    has_unread_answer = False
    is_aborted = False

    def abort(self):
        self.is_aborted = True


def gave_way(waiting, sending):
    """Which of those that have waited so many seconds for a request, or for a body."""

    async def run():
        everyone, now = OpenConnections(len(waiting) + len(sending)), 0.0
        everyone._clock = lambda: now
        ages = [(age, "waiting") for age in waiting] + [(age, "sending") for age in sending]
        connections = {}
        for age, group in sorted(ages, reverse=True):
            now, connection = -age, Connection()
            connections[connection] = (group, age)
            assert everyone.enter(connection)
            everyone.move(connection, getattr(everyone, group))
        now = 0.0
        assert everyone.enter(Connection())
        return [what for connection, what in connections.items() if connection.is_aborted]

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("waiting", "sending", "goes"),
    [
        ([5, 3], [9], ("waiting", 5)),
        ([0.1], [9, 3], ("sending", 9)),  # it is about to ask
        ([0.1, 0.2], [0.5], ("waiting", 0.2)),
        ([], [3, 0.1], ("sending", 3)),
    ],
)
def test_who_is_about_to_ask_does_not_give_way_to_who_never_ends(waiting, sending, goes):
    assert gave_way(waiting, sending) == [goes]
