"""The bundled models, each loaded once, for the scripts and pages that use them as they are."""

from collections.abc import Iterator

import pytest
from builders.warm_trees import LentTrees

# Options of pages that don't change what their models answer.
ALIKE = ("connect", "kv_cache_memory", "max_model_len", "num_threads", "tensor_parallel_size")


@pytest.fixture(scope="session")
def bundled_trees() -> Iterator[LentTrees]:
    trees = LentTrees(ALIKE)
    yield trees
    trees.close()
