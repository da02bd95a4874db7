"""A model larger than this machine's memory is refused by a real tree before any of its weights is read or made up."""

import json

import pytest
from builders.tiny_model import tiny_model

from penstock import LLM, OutOfMemoryError

OTHERS = [{"load_format": "dummy"}, {"quantization": "int4"}]


@pytest.fixture
def huge_model(tmp_path):
    """Petabytes by its config, in files that take no room on the disk."""
    folder = tiny_model(tmp_path / "huge", "llama", shards=2)
    path = folder / "config.json"
    sizes = {"hidden_size": 1 << 17, "intermediate_size": 1 << 20, "num_hidden_layers": 2000}
    path.write_text(json.dumps(json.loads(path.read_text()) | sizes))
    return folder


@pytest.mark.parametrize("options", [{}, *(pytest.param(each, marks=pytest.mark.long) for each in OTHERS)], ids=str)
def test_it_is_refused_with_what_it_needs_and_what_is_free(huge_model, options):
    with pytest.raises(OutOfMemoryError, match=r"The weights of .* need [\d.,]+ TiB in .*, and [\d.]+ GiB are free on"):
        LLM(huge_model, quiet=True, **options)


@pytest.mark.long
def test_two_ranks_on_one_machine_share_its_memory(huge_model):
    with pytest.raises(OutOfMemoryError, match="need .* and .* are free on"):
        LLM(huge_model, quiet=True, tensor_parallel_size=2)
