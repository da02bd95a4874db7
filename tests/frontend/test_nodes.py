"""Who may join a tree: a machine that doesn't fit is told why, in a sentence."""

import msgspec
from builders.cases import for_each

from penstock import __version__
from penstock.frontend.models.digests import digest_of_model
from penstock.frontend.nodes.link import Link, Node
from penstock.protocol.fingerprint import PROTOCOL
from penstock.protocol.options.config import EngineConfig
from penstock.protocol.ranks.node_messages import Join

FITTING = Join(PROTOCOL, __version__, 2, 3, "b", "d" * 64, {})


def link() -> Link:
    """Machine 0 of three, whose second has joined."""
    made = Link.__new__(Link)
    made.config = EngineConfig.from_options("m", nnodes=3, tensor_parallel_size=6, dtype="bf16", seed=7)
    made.digest = "d" * 64
    made.nodes = {1: Node(1, b"", "a")}
    return made


@for_each("change, words", [
    ({}, None),
    ({"options": {"tensor_parallel_size": 6, "dtype": "bfloat16", "seed": 7, "max_num_seqs": None}}, None),
    ({"version": "9.9"}, "it runs Penstock 9.9"), ({"protocol": "0" * 16}, "Install the same version on all machines"),
    ({"nnodes": 2}, "it was told nnodes=2, and node 0 nnodes=3"), ({"nnodes": 0}, "nnodes=0"),
    ({"node_rank": 0}, "node_rank=0 is none of 1 to 2"), ({"node_rank": 3}, "none of 1 to 2"),
    ({"node_rank": -1}, "none of 1 to 2"), ({"node_rank": 1}, "node_rank=1 has joined already, from a"),
    ({"digest": "e" * 64}, "its files of m are not those of node 0"), ({"digest": ""}, "Copy the same model"),
    ({"options": {"tensor_parallel_size": 4}}, "it was told tensor_parallel_size=4, and node 0 tensor_parallel_size=6"),
    ({"options": {"dtype": "float16"}}, "dtype='float16'"), ({"options": {"unknown": 1}}, "it was told unknown=1"),
])  # fmt: skip
def test_a_machine_that_does_not_fit_is_told_why(change, words):
    told = link()._refusal(msgspec.structs.replace(FITTING, **change))
    assert (words is None and told == "") or (words is not None and words in told and told.endswith(".")), told


def test_a_model_has_one_digest_wherever_it_lies(tmp_path):
    for place in ("here", "there/further"):
        (folder := tmp_path / place).mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"weights")
    here, there = (digest_of_model(tmp_path / place) for place in ("here", "there/further"))
    assert here == there
    (tmp_path / "here" / "model.safetensors").write_bytes(b"Weights")
    assert digest_of_model(tmp_path / "here") != there
