"""A machine whose ranks the others can't reach ends the tree before anything is loaded, in a network of the test's own
whose routes forbid one of its addresses.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from builders.nodes import FIRST, KEY, SECOND, free_port, options_of
from builders.watching import BOUND_SECONDS

_OWN_NETWORK = ["unshare", "--net", "--map-root-user", "sh", "-c"]
# The rule comes before the one that finds a machine's own addresses.
_RULES = (
    f"ip link set lo up && ip rule add pref 1 lookup local && ip rule add pref 0 to {SECOND} unreachable && "
    "ip rule del pref 0 lookup local"
)
_TREE = """
from builders.nodes import OtherMachine
from penstock import LLM, PenstockError
other = OtherMachine({model!r}, {port})
try:
    LLM({model!r}, **{options!r})
except PenstockError as error:
    print("NODE 0:", error)
status, said = other.ended()
print("NODE 1:", status, said)
"""


@pytest.mark.long
def test_an_address_without_a_way_ends_both_machines_with_a_sentence(model_folder, monkeypatch):
    if shutil.which("ip") is None or subprocess.run([*_OWN_NETWORK, _RULES], check=False).returncode:
        pytest.skip("this user may have no network of its own")
    monkeypatch.setenv("PENSTOCK_NODE_KEY", KEY)
    monkeypatch.setenv("PENSTOCK_HOST_IP", FIRST)
    port = free_port()
    script = _TREE.format(model=str(model_folder), port=port, options=options_of(port))
    command = f'{_RULES} && exec "$0" "$@"'
    done = subprocess.run(
        [*_OWN_NETWORK, command, sys.executable, "-c", script], stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=BOUND_SECONDS, check=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    node_0, _, node_1 = done.stdout.partition("NODE 1: ")
    for said in (node_0, node_1):
        assert "Node 1 (" in said and f"can't be reached at {SECOND}" in said and "PENSTOCK_HOST_IP" in said, said
    assert node_1.startswith("1 ")
