"""Broken headers by the thousands: each is read or refused in a sentence, within bounded memory, and quickly."""

import subprocess
import sys
from pathlib import Path

import pytest
from builders.address_space import address_space_limit
from builders.gguf_mutations import FOLDER, is_read, mutated, right_file

from penstock.protocol.files.gguf.header import read_header

QUICK, ALL = 400, 10_000
GUIDED = 100_000
TESTS = Path(__file__).parents[1]


def check_all(folder: Path, seeds: range) -> None:
    (folder / FOLDER).mkdir()
    path = folder / FOLDER / "model.gguf"
    path.write_bytes(right_file())
    read_header(path)
    with address_space_limit(512 << 20):
        num_read = sum(is_read(path, mutated(seed), f"seed {seed}") for seed in seeds)
    assert 0 < num_read < len(seeds) / 2, f"{num_read} of {len(seeds)} were read: what changes nothing tests nothing"


def test_some_hundreds_of_broken_headers_end_in_a_sentence_each(tmp_path):
    check_all(tmp_path, range(QUICK))


@pytest.mark.long
def test_ten_thousand_broken_headers_end_in_a_sentence_each(tmp_path):
    check_all(tmp_path, range(QUICK, QUICK + ALL))


@pytest.mark.long
def test_headers_that_reach_ever_more_lines_end_in_a_sentence_each(tmp_path):
    pytest.importorskip("atheris", reason="needs penstock[fuzz]")
    command = [sys.executable, "-m", "builders.fuzz_gguf", str(tmp_path), str(GUIDED)]
    done = subprocess.run(command, cwd=TESTS, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"Done {GUIDED} runs" in done.stderr, done.stderr[-3000:]
