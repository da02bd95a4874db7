"""Whether there are such models as a daemon is to serve, asked before it listens and says that it serves them.

A folder is looked at, a hub is asked, nothing is downloaded. What can't be told in time is told by the load.
"""

import asyncio
from collections.abc import Iterable

from ...protocol.errors import PenstockError
from ..models.model_files import require_known
from ..session.threads import in_own_thread
from .settings import ModelSettings

# A hub that says nothing keeps nobody from the other models.
_SECONDS = 5.0


async def require_models(models: Iterable[ModelSettings]) -> None:
    """Raises why one of those can't be loaded without which there is no daemon."""
    judging = [asyncio.create_task(_require(model)) for model in models if model.is_required]
    if not judging:
        return
    done, late = await asyncio.wait(judging, timeout=_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    for task in late:
        task.cancel()
    await asyncio.gather(*late, return_exceptions=True)
    for task in done:
        task.result()


async def _require(model: ModelSettings) -> None:
    try:
        await in_own_thread(require_known, model.config.model, model.config.revision)
    except PenstockError as error:
        raise type(error)(f"{model.name} could not be loaded: {error}") from error
