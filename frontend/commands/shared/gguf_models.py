"""Lists GGUF files: those in the stores of other programs, and those in given folders.

Each gets a folder with its translated config and no tokenizer, for a worker's survey.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

from ....protocol.errors import ConfigError
from ...models.gguf.description import describer
from ...models.gguf.find import model_files_in
from ...models.stores.stored_models import Listed, listed_file
from .cached_models import LocalModel


def described(models: Iterable[Listed], folder: Path) -> Iterator[LocalModel]:
    """List models with a folder for each within `folder`, or with the reason why they can't be read."""
    with closing(describer()) as translator:
        for number, (name, files, refusal) in enumerate(models):
            target = folder / str(number)
            target.mkdir()
            try:
                if files is None:
                    raise ConfigError(refusal)
                translator.translate(files, target)
                yield LocalModel(name, target, files.size, is_gguf=True)
            except (ConfigError, OSError) as error:
                yield LocalModel(name, target, files.size if files else 0, is_gguf=True, refusal=str(error))


def gguf_in(folder: Path) -> Iterator[Listed]:
    """The models in a folder, by their files."""
    return map(listed_file, model_files_in(folder))
