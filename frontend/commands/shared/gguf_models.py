"""Lists GGUF files: those in the stores of other programs, and in folders that are given.

Each gets a folder with the config that it translates to and no tokenizer, which is what a worker's survey looks at.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from ....protocol.errors import ConfigError
from ....protocol.files.gguf.parts import SUFFIX, is_later_part, parts_of
from ...models.gguf.description import Describer
from ...models.stores.stored_model import StoredModel, entries, stands_beside
from ...models.stores.stored_models import Listed
from .cached_models import LocalModel


def described(models: Iterable[Listed], folder: Path) -> Iterator[LocalModel]:
    """With folders within `folder`; of those that can't be read the reason."""
    with closing(Describer()) as describer:
        for number, (name, model, refusal) in enumerate(models):
            target = folder / str(number)
            target.mkdir()
            try:
                if model is None:
                    raise ConfigError(refusal)
                describer.describe(model.files, target)
                yield LocalModel(name, target, model.size, is_gguf=True)
            except (ConfigError, OSError) as error:
                yield LocalModel(name, target, model.size if model else 0, is_gguf=True, refusal=str(error))


def gguf_in(folder: Path) -> Iterator[Listed]:
    """The models that lie in a folder, by their files."""
    for path in entries(folder):
        if path.suffix == SUFFIX and path.is_file() and not stands_beside(path) and not is_later_part(path):
            yield gguf_at(path)


def gguf_at(path: Path) -> Listed:
    try:
        return Listed(str(path), StoredModel(str(path), parts_of(path)))
    except ConfigError as error:
        return Listed(str(path), None, str(error))
