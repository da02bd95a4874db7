"""How much of a group's memory one sequence takes at most, and how long a sequence may get in it."""

from collections.abc import Iterable

from ...protocol.layer_groups import GroupPlan, blocks_touched

_UNBOUNDED = 2**31 - 1  # tokens


def blocks_for(num_tokens: int, block_size: int) -> int:
    return -(-num_tokens // block_size)


def capacity(group: GroupPlan, block_size: int) -> int:
    """How many tokens of one sequence the group holds, if it has all of it."""
    if group.kind == "state":
        return _UNBOUNDED
    if group.window is not None and group.num_blocks >= blocks_touched(group.window, block_size):
        return _UNBOUNDED
    return group.num_blocks * block_size


def smallest(groups: Iterable[GroupPlan], block_size: int) -> GroupPlan:
    """The group that a growing sequence fills first."""
    return min(groups, key=lambda group: capacity(group, block_size))
