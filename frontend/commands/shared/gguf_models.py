"""Lists GGUF files: those in the stores of other programs, and in folders that are given.

Each gets a folder with the config that it translates to and no tokenizer, which is what a worker's survey looks at.
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
    """With folders within `folder`; of those that can't be read the reason."""
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
    """The models that lie in a folder, by their files."""
    return map(listed_file, model_files_in(folder))
