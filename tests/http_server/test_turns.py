"""Keys take turns at a model: whoever fills it makes nobody else wait for its end."""

import threading

import httpx
import pytest
from builders.daemon import wait_for
from builders.served import running_model, served

FLOOD = {"prompt": "Go on.", "max_tokens": 400, "ignore_eos": True}
SHORT = {"prompt": "Hello", "max_tokens": 4, "temperature": 0, "ignore_eos": True}


@pytest.fixture(scope="module")
def crowded():
    """Four places, and answers of no computation."""
    with running_model("pocket", load_format="stand-in", max_model_len=1024, max_num_seqs=4) as found:
        yield found


def test_a_key_is_answered_while_another_keeps_all_places_and_has_many_requests_waiting(crowded, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("flood\ngood\n")
    with served(*crowded, api_key_file=str(keys)) as server:
        ends = threading.Event()
        clients = [httpx.Client(base_url=server.address, timeout=60) for _ in range(14)]

        def ask(client, body, key):
            return client.post("/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"})

        def flood(client):
            while not ends.is_set():
                ask(client, FLOOD, "flood")

        threads = [threading.Thread(target=flood, args=(client,)) for client in clients]
        for thread in threads:
            thread.start()
        wait_for(lambda: server.stats().waiting >= 8, "the flood is there")
        with httpx.Client(base_url=server.address, timeout=30) as good:
            before = server.stats()
            assert ask(good, SHORT, "good").status_code == 200
            after = server.stats()
        ends.set()
        # Ten wait before it, in four places, and each of those takes 400 steps. Some steps pass while it is on its way.
        assert after.waiting >= 6 and after.steps - before.steps < 400
        for thread in threads:
            thread.join(60)
        for client in clients:
            client.close()
