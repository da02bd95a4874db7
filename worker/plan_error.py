"""The error for a plan that breaks a rule of the stream; the worker and its stand-in check each plan alike."""


class PlanError(RuntimeError):
    """An invalid plan: the stream is broken, so this tree ends."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise PlanError(f"The plan {sentence}.")
