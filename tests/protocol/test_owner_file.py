"""A file that an owner names may be a pipe, and is refused where it has no end."""

import os

import pytest

from penstock.frontend.daemon.settings import read_settings
from penstock.protocol.errors import ConfigError
from penstock.protocol.files.owner_file import MOST_BYTES, read_owner_file


def test_a_pipe_is_read_to_its_end():
    reading, writing = os.pipe()
    os.write(writing, b"keep_alive = 3\n")
    os.close(writing)
    assert read_owner_file(f"/dev/fd/{reading}") == b"keep_alive = 3\n"
    os.close(reading)


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/full"])
def test_a_device_without_end_is_a_sentence(device):
    with pytest.raises(ConfigError, match=f"{device} is longer than {MOST_BYTES >> 20} MiB"):
        read_settings(device, [], {}, {}, None)
