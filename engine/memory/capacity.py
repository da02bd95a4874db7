"""How much of a group's memory one sequence takes at most, and how long a sequence may get in it."""

from collections.abc import Iterable

from ...protocol.layer_groups import GroupPlan

_UNBOUNDED = 2**31 - 1  # tokens


def blocks_for(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


def blocks_of_window(window: int, block_size: int) -> int:
    """How many blocks the last `window` tokens lie in at most, the newest among them."""
    return blocks_for(window - 1, block_size) + 1


def capacity(group: GroupPlan, block_size: int) -> int:
    """How many tokens of one sequence the group holds, if it has all of it."""
    if group.kind == "state":
        return _UNBOUNDED
    if group.window is not None and group.num_blocks >= blocks_of_window(group.window, block_size):
        return _UNBOUNDED
    return group.num_blocks * block_size


def smallest(groups: Iterable[GroupPlan], block_size: int) -> GroupPlan:
    """The group that a growing sequence fills first."""
    return min(groups, key=lambda group: capacity(group, block_size))
