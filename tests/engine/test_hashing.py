"""Keys of KV blocks: equal exactly where the content is."""

from itertools import combinations

from penstock.engine.memory.keys import next_key, root_key
from penstock.protocol.messages import column


def test_a_key_depends_on_every_token_before_it():
    root = root_key(None, None, None)
    tokens = column([1, 2, 3, 4])
    assert next_key(next_key(root, tokens), tokens) != next_key(root, tokens)
    assert next_key(next_key(root, column([1, 2])), tokens) != next_key(next_key(root, column([1, 3])), tokens)


def test_whoever_differs_in_salt_adapter_or_privacy_shares_nothing():
    roots = [
        root_key(None, None, None),
        root_key("", None, None),
        root_key("7", None, None),
        root_key(None, "7", None),
        root_key(None, None, 7),
    ]
    assert all(one != other for one, other in combinations(roots, 2))


def test_the_same_tokens_have_the_same_key_in_every_process():
    key = next_key(root_key(None, None, None), column([1, 2, 3, 4]))
    assert key.hex() == "38ad0ddf3cc80ed3a709f552fac592217e8cae063f9d36e3444cda87b54cf5ef"
