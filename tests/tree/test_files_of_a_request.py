"""How many files somebody reads who follows one greedy request of text: what it doesn't use, it doesn't meet."""

from files_of_a_request import files_of, rooms_of

# Of each room. A file more is a feature that a request meets without using it, or a hop that could be spared.
# Drafts, which are on by default, are up to four of the engine's and ten of the worker's: whether they pay in so short
# a request is a matter of time.
MOST = {"frontend": 17, "engine": 20, "worker": 27, "kernels": 5, "protocol": 6}


def test_a_greedy_request_of_text_runs_through_so_many_files_at_most():
    files = files_of("text")
    rooms = rooms_of(files)
    assert "engine" in rooms and "worker" in rooms
    assert {room: count for room, count in rooms.items() if count > MOST.get(room, 0)} == {}, files
