"""Files of strangers: decoded in a process of their own, or refused with a sentence."""

import io

import numpy
import pytest
from PIL import Image

from penstock.frontend.media.families.qwen3 import Qwen3Vision
from penstock.frontend.media.processes import MediaProcesses
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.frontend.requests.media_sources import encoded
from penstock.protocol.errors import RequestError


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    made = MediaProcesses(Qwen3Vision.of(ProcessorFiles(tmp_path_factory.mktemp("model"), {}, {}, {}, {})))
    yield made
    made.close()


def file_of(image, kind="PNG", **options):
    content = io.BytesIO()
    image.save(content, kind, **options)
    return content.getvalue()


NOISE = Image.fromarray(numpy.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=numpy.uint8))


def test_a_picture_comes_back_resized_with_a_digest_of_what_is_seen(processes):
    by_file = processes.decode(encoded("image", file_of(NOISE), may_open=False))
    by_pixels = processes.decode(encoded("image", NOISE, may_open=False))
    assert by_file.shape == (1, 288, 384) and len(by_file.pixels) == 288 * 384 * 3
    assert by_file == by_pixels


@pytest.mark.parametrize(
    "content, says",
    [
        (b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (file_of(NOISE)[:2000], "cut off"),
        (file_of(NOISE)[:40], "damaged|cut off"),
        (b"%PDF-1.7 " + file_of(NOISE), "PDF"),
        (b"nothing at all", "no format that is known"),
        (b"\x00\x00\x00 ftypisom" + bytes(100), "a video"),
    ],
)
def test_what_is_no_picture_is_refused_with_a_sentence(processes, content, says):
    refusal = processes.decode(encoded("image", content, may_open=False))
    assert isinstance(refusal, RequestError)
    with pytest.raises(RequestError, match=says):
        raise refusal
