"""Files of strangers: decoded in a process of their own, or refused with a sentence."""

import io
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import msgspec
import numpy
import pytest
from builders.cases import for_each
from builders.films import film
from builders.hostile_media import png
from builders.tiny_sight import file_of
from PIL import Image, ImageOps

from penstock.frontend.media import rgb
from penstock.frontend.media.decoded import Layout, digest_of
from penstock.frontend.media.decoding.films import open_film
from penstock.frontend.media.decoding.images import FORMATS, refuse_others
from penstock.frontend.media.door import MediaDoor
from penstock.frontend.media.families.family import Grid
from penstock.frontend.media.families.qwen import Qwen3Vision
from penstock.frontend.media.placeholders import Run, positions_of
from penstock.frontend.media.places import Places
from penstock.frontend.media.processes import MediaProcesses, ahead
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.frontend.media.rgb import as_rgb
from penstock.frontend.media.sources.source import encoded
from penstock.protocol.errors import LimitError, RequestError
from penstock.protocol.processes import bounded_process
from penstock.protocol.processes.bounded_process import Bounds


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    files = ProcessorFiles(tmp_path_factory.mktemp("model"), {}, {}, {}, {})
    with closing(MediaProcesses(Qwen3Vision.of(files))) as made:
        yield made


def decoded(processes, content, kind="image"):
    return processes.decode(encoded(kind, content, may_open=False))


NOISE = Image.fromarray(numpy.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=numpy.uint8))
GRAY = NOISE.convert("L")  # whose animations need no palette to be found


def test_a_picture_comes_back_resized_with_a_digest_of_what_is_seen(processes):
    by_file = decoded(processes, file_of(NOISE))
    by_pixels = decoded(processes, NOISE)
    assert by_file.shape == (1, 288, 384) and len(by_file.pixels) == 288 * 384 * 3
    assert by_file == by_pixels


@for_each("kind, content, says", [
    ("image", b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
    ("image", file_of(NOISE)[:2000], "cut off"), ("image", file_of(NOISE)[:40], "damaged|cut off"),
    ("image", b"%PDF-1.7 " + file_of(NOISE), "PDF"), ("image", b"nothing at all", "no format that is known"),
    ("image", b"\x00\x00\x00 ftypisom" + bytes(100), "a video"),
    ("video", b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n", "no format that is known"),
    ("video", b"ffconcat version 1.0\nfile /etc/passwd\n", "no format that is known"),
    ("video", b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 5004 RTP/AVP 96\n", "no format that is known"),
    ("video", [file_of(NOISE), file_of(NOISE.resize((50, 60)))], "frame 2 has 50 x 60"),
])  # fmt: skip
def test_what_is_no_picture_or_video_is_refused_with_a_sentence(processes, kind, content, says):
    refusal = decoded(processes, content, kind)
    assert isinstance(refusal, RequestError) and any(each in str(refusal) for each in says.split("|"))


@for_each("format", FORMATS)
def test_the_first_bytes_of_a_picture_keep_it_from_being_refused_unread(format):
    refuse_others(file_of(GRAY, format))
    for more in {"TIFF": [{"big_tiff": True}], "JPEG2000": [{"no_jp2": True}]}.get(format, []):
        refuse_others(file_of(GRAY, format, **more))


PALETTE = Image.fromarray(numpy.arange(64, dtype=numpy.uint8).reshape(8, 8)).convert("P")
PALETTE.info["transparency"] = 5
MODES = {
    "L": NOISE.convert("L"), "LA": NOISE.convert("LA"),
    "RGBA": Image.merge("RGBA", [*NOISE.split(), NOISE.convert("L")]),
    "P": NOISE.convert("P"), "P with a transparent color": PALETTE, "1": NOISE.convert("1"),
    "CMYK": NOISE.convert("CMYK"),
    "16 bits": Image.fromarray(numpy.arange(64, dtype=numpy.uint16).reshape(8, 8) * 900),
    "YCbCr": NOISE.convert("YCbCr"),
}  # fmt: skip


@for_each("mode", MODES)
def test_every_mode_becomes_rgb_as_in_transformers(mode):
    from transformers.image_transforms import convert_to_rgb

    wanted = convert_to_rgb(MODES[mode].copy(), return_numpy=True)
    assert numpy.array_equal(numpy.asarray(as_rgb(MODES[mode])), wanted)


@for_each("orientation", range(1, 9))
def test_a_photograph_stands_as_its_camera_was_held(processes, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    seen = decoded(processes, file_of(NOISE, "TIFF", exif=exif))
    turned = ImageOps.exif_transpose(Image.open(io.BytesIO(file_of(NOISE, "TIFF", exif=exif))))
    assert seen == decoded(processes, numpy.asarray(turned))


def test_the_first_frame_of_an_animation_is_a_picture_and_all_of_them_a_video(processes):
    frames = [Image.new("RGB", (64, 64), (60 * number, 0, 0)) for number in range(4)]
    animation = file_of(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=500)
    picture = decoded(processes, animation)
    assert picture.shape[0] == 1 and max(picture.pixels) == 0
    video = decoded(processes, animation, "video")
    assert video.shape[0] == 4 and video.layout.times == (0.0, 0.5, 1.0, 1.5)
    # Positions are rows of a table that grows to the largest: a file's word for its rate must not decide on its size.
    with pytest.raises(LimitError, match="steps of the model's time"):
        positions_of(8, [Run(2, 2, Grid((0, 1 << 40), 1, 1))])
    slow = file_of(GRAY, "GIF", save_all=True, append_images=[*map(GRAY.rotate, (90, 180, 270))], duration=655_350)
    assert decoded(processes, slow, "video").layout.times[-1] == pytest.approx(1966, abs=1)


def test_a_film_is_decoded_by_pyav_where_it_is_installed(processes, monkeypatch):
    pytest.importorskip("av")
    frames = [Image.new("RGB", (320, 240), (2 * number,) * 3) for number in range(90)]
    assert open_film(film(frames, rate=30, container="matroska")).num_frames == 90  # which it does not state
    content = film(frames, rate=30)
    seen = decoded(processes, content, "video")
    first_levels = numpy.frombuffer(seen.pixels, numpy.uint8).reshape(*seen.shape, 3)[:, 0, 0, 0].astype(int)
    wanted = [2 * round(30 * seconds) for seconds in seen.layout.times]
    assert len(wanted) == 6 and numpy.abs(first_levels - wanted).max() <= 4
    for damaged in (content[:3000], b"\x00\x00\x00\x20ftypisom" + bytes(500)):
        assert isinstance(decoded(processes, damaged, "video"), RequestError)
    monkeypatch.setattr(rgb, "MOST_PIXELS", 320 * 240 - 1)
    with pytest.raises(LimitError, match="320 x 240"):
        open_film(content)


def test_a_bomb_is_refused_by_its_header_or_fails_alone_where_it_takes_too_much_memory(processes):
    refusal = decoded(processes, png(40_000, 40_000))
    assert isinstance(refusal, LimitError) and "96 million pixels" in str(refusal)
    bounds = Bounds(memory_bytes=64 << 20, wall_seconds=600.0)
    with closing(MediaProcesses(processes._family, bounds)) as small:
        refusal = decoded(small, png(8000, 8000))
        assert isinstance(refusal, LimitError) and ("memory" in str(refusal) or "MiB" in str(refusal))
        assert decoded(small, file_of(NOISE)).shape == (1, 288, 384)


@for_each("kind", ["image", "video"])
@for_each("shape", [(1, 300, 401), (0, 0, 0), (-1, 400, -300), (1, 1 << 40, 1)])
def test_pixels_that_are_not_what_their_shape_says_are_refused(processes, kind, shape):
    medium = msgspec.structs.replace(encoded(kind, NOISE, may_open=False), shape=shape)
    assert "are not those of" in str(processes.decode(medium))


def test_the_media_of_a_prompt_have_a_bound_of_processor_time_and_waiting_is_none_of_it(processes):
    spent: list[float] = []
    medium = processes.decode(encoded("image", NOISE.resize((4000, 3000)), may_open=False), spent.append)
    assert len(spent) == 1 and 0 < spent[0] < 60

    def read(media, spend):
        for each in media:
            spend(50.0)
            yield each

    sight = SimpleNamespace(family=processes._family, read=read, row_token_ids=frozenset())
    door = MediaDoor(sight, None, most_characters=0, most_tokens=1 << 30)
    assert door._decoded([medium] * 2) == [medium] * 2
    with pytest.raises(LimitError, match="takes more than 120 s of processor time"):
        door._decoded([medium] * 3)


def test_nothing_but_what_is_seen_decides_a_digest(processes):
    """A name in a file's metadata is its maker's to choose; a level or a transparent pixel is not."""
    named, other = Image.Exif(), Image.Exif()
    named[0xA420], other[0xA420] = "one", "another"  # ImageUniqueID
    transparent = NOISE.copy()
    transparent.putalpha(0)
    palette = NOISE.quantize(16)
    swapped = palette.copy()
    swapped.putpalette(palette.getpalette()[::-1])
    files = [file_of(NOISE, exif=named), file_of(NOISE, exif=other), file_of(transparent), file_of(palette)]
    files += [file_of(swapped), file_of(NOISE.point(lambda level: level // 2))]
    files.append(file_of(NOISE.transpose(Image.Transpose.ROTATE_180)))
    digests = [decoded(processes, file).digest for file in files]
    assert digests[0] == digests[1] and len(set(digests[1:])) == len(files) - 1
    times = ({}, {"times": (0.0,)}, {"times": (0.5,)}, {"times": (0.5,), "frame_rate": 2.0})
    media = [("image", bytes(96), Layout(shape)) for shape in ((1, 4, 8), (1, 8, 4), (2, 4, 4))]
    media += [("video", bytes(96), Layout((1, 4, 8), **each)) for each in times]
    media.append(("image", bytes(95) + b"\1", Layout((1, 4, 8))))
    assert len({digest_of(*medium) for medium in media}) == len(media)


def test_the_answer_about_an_interrupted_picture_is_not_taken_for_the_next_one(processes, monkeypatch):
    """As Ctrl-C in a notebook interrupts."""

    def interrupted(*_):
        raise KeyboardInterrupt

    upside_down = encoded("image", NOISE.rotate(180), may_open=False)
    expected = processes.decode(upside_down)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(bounded_process, "_received", interrupted)
        decoded(processes, NOISE)
    assert processes.decode(upside_down) == expected


def test_what_takes_long_leaves_its_short_place_to_others():
    places, stopped = Places(1, 1, 0.01), threading.Event()
    slow = places.begin_short()
    places.end(places.begin_short())  # once the first one has gone on in the long place
    assert slow.has_long
    other = places.begin_short()
    other.stop = stopped.set
    ending = threading.Thread(target=lambda: stopped.wait(60) and places.end(other))
    ending.start()
    places.end(places.begin_short())
    ending.join()
    assert other.was_stopped and places.begin_long(0) is None
    places.end(slow)
    assert places.begin_long(60)


def test_animations_that_take_long_are_decoded_beside_pictures_and_one_after_the_other(processes):
    """In two places; where they are stopped, they begin anew."""
    frames = [GRAY.rotate(angle) for angle in range(0, 360, 12)]
    animation = file_of(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100)
    given = [encoded("video", animation, may_open=False)] * 3 + [encoded("image", NOISE, may_open=False)] * 3
    with closing(MediaProcesses(processes._family, places=Places(1, 1, 0.2))) as tight:
        with ThreadPoolExecutor(len(given)) as pool:
            found = list(pool.map(tight.decode, given))
        assert found == [processes.decode(given[0])] * 3 + [processes.decode(given[-1])] * 3
        assert len(tight._pool._all) <= 2


def test_a_prompts_pictures_are_decoded_some_at_once_in_their_order_and_no_more_than_are_wanted():
    both, begun = threading.Barrier(2), []

    def work(number: int) -> int:
        begun.append(number)
        both.wait(60)  # for the one beside it
        return number

    found = ahead(work, range(10), 2)
    assert [next(found), next(found)] == [0, 1]
    assert set(begun) <= {0, 1, 2}
    assert list(ahead(str, range(50), 8)) == [str(number) for number in range(50)]
    with pytest.raises(ZeroDivisionError):
        list(ahead(lambda number: 1 // number, [1, 0], 2))
