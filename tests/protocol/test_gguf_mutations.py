"""Broken headers by the thousands: each is read or refused in a sentence, within bounded memory, and quickly."""

import time
from pathlib import Path

import pytest
from builders.address_space import address_space_limit
from builders.gguf_mutations import mutated, right_file

from penstock.protocol.errors import ConfigError
from penstock.protocol.files.gguf.header import read_header

QUICK, ALL = 400, 10_000
FOLDER = "a-folder-that-no-error-names"


def check(path: Path, seed: int) -> bool:
    """Whether it was read."""
    content = mutated(seed)
    path.write_bytes(content)
    began = time.process_time()
    try:
        for each in read_header(path).tensors:
            assert 0 <= each.offset <= each.offset + each.nbytes <= len(content), f"seed {seed}: {each}"
    except ConfigError as error:
        said = str(error)
        assert said.startswith("model.gguf can't be used: it "), f"seed {seed}: {said}"
        assert FOLDER not in said and "\n" not in said and len(said) < 400, f"seed {seed}: {said}"
        return False
    finally:
        assert time.process_time() - began < 1, f"seed {seed} takes long"
    return True


def check_all(folder: Path, seeds: range) -> None:
    (folder / FOLDER).mkdir()
    path = folder / FOLDER / "model.gguf"
    path.write_bytes(right_file())
    read_header(path)
    with address_space_limit(512 << 20):
        num_read = sum(check(path, seed) for seed in seeds)
    assert 0 < num_read < len(seeds) / 2, f"{num_read} of {len(seeds)} were read: what changes nothing tests nothing"


def test_some_hundreds_of_broken_headers_end_in_a_sentence_each(tmp_path):
    check_all(tmp_path, range(QUICK))


@pytest.mark.long
def test_ten_thousand_broken_headers_end_in_a_sentence_each(tmp_path):
    check_all(tmp_path, range(QUICK, QUICK + ALL))
