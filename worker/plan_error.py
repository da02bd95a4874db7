"""What a worker raises at a plan that breaks a rule of the stream.

The worker and its stand-in check each plan alike; only the worker imports torch.
"""


class PlanError(RuntimeError):
    """A plan that no engine may send: the stream is broken, and so this tree ends."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise PlanError(f"The plan {sentence}.")
