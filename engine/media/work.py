"""How much work it is to encode a medium, in patches x layers.

The attention of a patch counts as so many more of them, so that work is in proportion to time.
"""

from ...protocol.media import MediaPlan, Medium

LEAST_WORK = 256  # of a step that encodes at all: some milliseconds of a large encoder


def work_of(medium: Medium, plan: MediaPlan) -> int:
    keys = plan.num_full_layers * patches_of_frame(medium, plan.frames_together)
    return medium.num_patches * plan.num_layers + medium.num_patches * keys // plan.patch_keys


def patches_of_frame(medium: Medium, frames_together: int) -> int:
    """The patches of one frame, or of all frames that share their rows."""
    num_frames = medium.shape[0]
    return -(-medium.num_patches * min(frames_together, num_frames) // num_frames)
