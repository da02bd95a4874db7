"""Media that are larger than an encoder takes are made smaller, and what can't be made so small is refused."""

import math

import numpy
import pytest
from builders.cases import for_each
from builders.tiny_sight import SEEING, noise, seeing_folder

from penstock.frontend.media.decoded import DecodedMedium
from penstock.frontend.media.families.frames import Video
from penstock.frontend.media.families.table import _KINDS, family_of
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.protocol.errors import LimitError
from penstock.protocol.media import MediaPlan

ANY_SIZE = ("qwen2_5_vl", "qwen3_vl", "ernie4_5_moe_vl")
TOGETHER = dict(zip(ANY_SIZE, (2, 2, 2)))
SIZES = [(40, 40), (3000, 4000), (5000, 3300), (900, 20_000), (12_000, 700), (2160, 3840)]
SIZES += numpy.random.default_rng(3).integers(1500, 6000, (20, 2)).tolist()


class Clip(Video):
    fps = 30.0

    def __init__(self, num_frames, height, width):
        self.num_frames, self.height, self.width = num_frames, height, width

    def frames(self, indices):
        image = noise(64, 64).resize((self.width, self.height))
        return ((index, image) for index in indices)


class Sized:
    """A picture that is never decoded: what it is resized to is only its size."""

    def __init__(self, height, width):
        self.height, self.width = height, width
        self.size = (width, height)

    def resize(self, size, resample):
        return numpy.broadcast_to(numpy.uint8(0), (size[1], size[0], 3))


def plan(kind, at_once, patches=1 << 20, rows=1 << 20):
    return MediaPlan(rows, 1, 1, most_patches=patches, most_of_frame=at_once, frames_together=TOGETHER.get(kind, 1))


def family(tmp_path, kind, encoder=None, **options):
    found = family_of(ProcessorFiles.read(seeing_folder(tmp_path / kind, kind)), options)
    return found if encoder is None else found.fitting(encoder)


def medium(kind, frames):
    return DecodedMedium(kind, b"", frames.layout, b"")


@for_each("kind", ANY_SIZE)
@for_each("at_once", [400, 3000, 12_010, 16_384, 20_480])
def test_a_picture_of_any_size_is_made_as_large_as_the_encoder_takes_it(tmp_path, kind, at_once):
    usual, fitting = family(tmp_path, kind), family(tmp_path, kind, plan(kind, at_once))
    num_smaller = 0
    for height, width in SIZES:
        wanted = medium("image", usual.image(Sized(height, width), {}))
        found = medium("image", fitting.image(Sized(height, width), {"min_pixels": 2**30} if height > 4500 else {}))
        fitting.check_fits(found)
        if usual.num_patches(wanted) <= at_once and height <= 4500:
            assert found.shape == wanted.shape
            continue
        num_smaller += 1
        patches = fitting.num_patches(found)
        assert patches <= at_once
        shorter, longer = sorted(found.shape[1:])
        step = fitting.patch * fitting.merge  # sides are whole rows: the rest may be missing of each
        assert patches * fitting.patch**2 > at_once * fitting.patch**2 - (longer + shorter) * step
        assert math.isclose(found.shape[1] / height, found.shape[2] / width, rel_tol=2.1 * step / shorter)
    assert num_smaller


@for_each("kind", ANY_SIZE)
def test_a_video_becomes_as_small_as_its_processor_makes_any(tmp_path, kind):
    for num_frames, at_once, patches in ((1, 900, 1 << 20), (2, 20_480, 6000), (7, 900, 1 << 20), (60, 20_480, 6000)):
        fitting = family(tmp_path, kind, plan(kind, at_once, patches), fps=30.0, min_frames=1)
        frames = fitting.video(Clip(num_frames, 700, 1200), {})
        fitting.check_fits(medium("video", frames))
        assert frames.layout.shape[0] >= max(2, num_frames - 1)
    least = fitting.video_pixels[0] // fitting.patch**2 * (1 if kind == "qwen3_vl" else 30)
    fitting = fitting.fitting(plan(kind, 20_480, least // 3))
    with pytest.raises(LimitError, match="patches, and the encoder takes.*max_frames"):
        fitting.check_fits(medium("video", fitting.video(Clip(60, 700, 1200), {})))


def test_rows_are_counted_as_patches_are(tmp_path):
    fitting = family(tmp_path, "qwen3_vl", plan("qwen3_vl", 16_384, rows=1000))
    found = medium("image", fitting.image(Sized(3000, 4000), {}))
    assert 900 < fitting.num_rows(found) <= 1000


@for_each("kind, options, name", [
    ("gemma3", {"do_pan_and_scan": True}, "pan_and_scan_max_num_crops"), ("smolvlm", {}, "size"),
])  # fmt: skip
def test_tiles_that_are_too_many_are_refused_with_an_option_that_the_processor_has(tmp_path, kind, options, name):
    squares = family(tmp_path, kind, plan(kind, 4096, patches=4096), **options)
    with pytest.raises(LimitError, match=rf"patches, and the encoder takes 4,096.*mm_processor_kwargs: {name}\)"):
        squares.check_fits(medium("image", squares.image(noise(260, 900), {})))


def test_what_a_refusal_names_is_an_option_of_that_processor():
    for kind in _KINDS.values():
        for medium_kind, names in kind.MAKE_SMALLER.items():
            settings = kind.IMAGE_SETTINGS if medium_kind == "image" else kind.VIDEO_SETTINGS
            assert set(names.split(", ")) <= set(settings), kind
    assert set(SEEING) <= set(_KINDS)
