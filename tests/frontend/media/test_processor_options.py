"""Every option of every processor takes what its encoder can compute, or is refused; media fit the encoder's room."""

import math
from functools import reduce

import numpy
import pytest
from builders.cases import for_each
from builders.tiny_sight import SEEING, Clip, noise, seeing_folder

from penstock import LLM
from penstock.frontend.media.decoded import DecodedMedium
from penstock.frontend.media.families.table import _KINDS, family_of
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.protocol.errors import ConfigError, LimitError, RequestError
from penstock.protocol.media import MediaPlan

ODD = [
    0, -1, 1, 2, 3, 0.5, 1.5, 7, 64, 1e-300, 1e300, 2**31, 2**40, 10**30, True, False, "", "4", "all", [], [4], [[4]],
    {}, {"longest_edge": 3}, {"longest_edge": 0}, {"longest_edge": "x"}, {"shortest_edge": 10**6, "longest_edge": 5},
    {"height": 2, "width": 2}, {"height": 896, "width": 10**9}, {"longest_edge": {"longest_edge": 4}}, {"": 1},
    {"longest_edge": 2**31}, {"longest_edge": 513},
]  # fmt: skip


def medium(kind, frames):
    return DecodedMedium(kind, b"", frames.layout, b"")


def check_encoder_takes(family, vision, medium):
    """What a worker requires of a medium (`worker/media/arrangement.py`)."""
    frames, height, width = medium.shape
    patch = vision.get("patch_size", family.patch)
    merge = getattr(family, "merge", None) or round(math.sqrt((height // patch) * (width // patch) / family.rows))
    assert height // patch % merge == width // patch % merge == 0
    assert frames == 1 or hasattr(family, "rows") or frames % 2 == 0
    if "image_size" in vision and medium.kind == "image" and hasattr(family, "crops"):
        assert height == width == vision["image_size"]
    of_frame = (height // patch // merge) * (width // patch // merge)
    pairs = frames if hasattr(family, "rows") else max(frames // 2, 1)
    assert family.num_rows(medium) == pairs * of_frame


@for_each("kind", SEEING)
def test_any_value_of_any_option_is_refused_or_can_be_computed(tmp_path, kind):
    files = ProcessorFiles.read(seeing_folder(tmp_path, kind))
    family_class = _KINDS[kind]
    image, clip, taken = noise(150, 250), Clip(5, 25.0, 60, 90), 0
    for name in sorted({*family_class.IMAGE_SETTINGS, *family_class.VIDEO_SETTINGS}):
        for value in ODD:
            try:
                family = family_of(files, {name: value})
            except ConfigError:
                continue
            taken += 1
            changed = {"image": family_class.IMAGE_SETTINGS, "video": family_class.VIDEO_SETTINGS}
            for medium_kind in (each for each in family.kinds if name in changed[each]):
                try:
                    frames = family.image(image, {}) if medium_kind == "image" else family.video(clip, {})
                except RequestError:
                    continue
                check_encoder_takes(family, files.vision, medium(medium_kind, frames))
    assert taken >= 5
    names = {*family_class.IMAGE_SETTINGS, *family_class.VIDEO_SETTINGS}
    assert family_of(files, dict.fromkeys(names)) == family_of(files), "None is as if left out"


@for_each("written, own", [
    ({"image_max_pixels": 10**6}, {"images_kwargs": {"max_pixels": 10**6}}),
    ({"image_min_pixels": 9999, "video_fps": 3}, {"images_kwargs": {"min_pixels": 9999}, "videos_kwargs": {"fps": 3}}),
    ({"video_target_frames": 8}, {"videos_kwargs": {"num_frames": 8}}),
])  # fmt: skip
def test_fastdeploys_names_are_those_of_one_part_alone(tmp_path, written, own):
    files = ProcessorFiles.read(seeing_folder(tmp_path, "qwen2_5_vl"))
    assert family_of(files, written) == family_of(files, own) != family_of(files)
    with pytest.raises(ConfigError, match="Did you mean min_pixels"):
        family_of(files, {"image_min_pixel": 5})


@for_each("kind, given", [
    ("gemma3", {"size": {"height": 448, "width": 448}}), ("gemma3", {"size": {"longest_edge": 896}}),
    ("gemma3", {"size": 896}), ("smolvlm", {"max_image_size": {"longest_edge": 256}}),
    ("smolvlm", {"max_image_size": 512}), ("qwen3_vl", {"size": [5, 6]}), ("qwen3_vl", {"size": {}}),
    ("qwen3_vl", {"images_kwargs": {"size": {"height": 5}}}), ("qwen3_vl", {"images_kwargs": 5}),
    ("smolvlm", {"do_image_splitting": "yes"}), ("ernie4_5_moe_vl", {"max_pixel": 5}),
    ("qwen2_5_vl", {"patch_size": 16}), ("qwen2_5_vl", {"do_resize": False}), ("smolvlm", {"max_pixels": 10**6}),
])  # fmt: skip
def test_what_a_processor_cannot_take_is_refused_with_a_sentence(tmp_path, kind, given):
    files = ProcessorFiles.read(seeing_folder(tmp_path, kind))
    with pytest.raises(ConfigError, match=r"size|patch|resize|images_kwargs|max_pixels|true or false"):
        family_of(files, given)


def test_what_is_no_plain_dict_is_refused_before_anything_starts(tmp_path):
    nested = reduce(lambda inner, _: [inner], range(100_000), [])
    numbers = [{"max_pixels": value} for value in (float("nan"), float("inf"), object(), b"5")]
    for given in (*numbers, {5: 6}, [5], 7, "x", "[5]", {"size": nested}):
        with pytest.raises(ConfigError, match="mm_processor_kwargs"):
            LLM(seeing_folder(tmp_path, "gemma3"), mm_processor_kwargs=given)


@for_each("kind, file, changed", [
    ("qwen3_vl", "preprocessor_config", {"patch_size": 14}), ("qwen3_vl", "preprocessor_config", {"merge_size": 3}),
    ("ernie4_5_moe_vl", "preprocessor_config", {"patch_size": 16}),
    ("gemma3", "processor_config", {"image_seq_length": 64}), ("smolvlm", "processor_config", {"image_seq_len": 81}),
])  # fmt: skip
def test_processors_that_do_not_fit_their_encoder_are_refused_at_the_start(tmp_path, kind, file, changed):
    folder = seeing_folder(tmp_path, kind, **{file: SEEING[kind][f"{file}.json"] | changed})
    [name] = changed
    with pytest.raises(ConfigError, match=name):
        family_of(ProcessorFiles.read(folder))


ANY_SIZE = ("qwen2_5_vl", "qwen3_vl", "ernie4_5_moe_vl")
SIZES = [(40, 40), (3000, 4000), (5000, 3300), (900, 20_000), (12_000, 700), (2160, 3840)]
SIZES += numpy.random.default_rng(3).integers(1500, 6000, (20, 2)).tolist()


class Sized:
    """A picture that is never decoded: what it is resized to is only its size."""

    def __init__(self, height, width):
        self.height, self.width = height, width
        self.size = (width, height)

    def resize(self, size, resample):
        return numpy.broadcast_to(numpy.uint8(0), (size[1], size[0], 3))


def plan(kind, at_once, patches=1 << 20, rows=1 << 20):
    together = 2 if kind in ANY_SIZE else 1
    return MediaPlan(rows, 1, 1, most_patches=patches, most_of_frame=at_once, frames_together=together)


def family(tmp_path, kind, encoder=None, **options):
    found = family_of(ProcessorFiles.read(seeing_folder(tmp_path / kind, kind)), options)
    return found if encoder is None else found.fitting(encoder)


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
    for num_frames, at_once, patches in ((1, 900, 1 << 20), (2, 20_480, 6000), (7, 900, 1 << 20), (20, 20_480, 2000)):
        fitting = family(tmp_path, kind, plan(kind, at_once, patches), fps=30.0, min_frames=1)
        frames = fitting.video(Clip(num_frames, 30.0, 700, 1200), {})
        fitting.check_fits(medium("video", frames))
        assert frames.layout.shape[0] >= max(2, num_frames - 1)
    least = fitting.video_pixels[0] // fitting.patch**2 * (1 if kind == "qwen3_vl" else 10)
    fitting = fitting.fitting(plan(kind, 20_480, least // 3))
    with pytest.raises(LimitError, match="patches, and the encoder takes.*max_frames"):
        fitting.check_fits(medium("video", fitting.video(Clip(20, 30.0, 700, 1200), {})))


@for_each("kind, options, name", [
    ("gemma3", {"do_pan_and_scan": True}, "pan_and_scan_max_num_crops"), ("smolvlm", {}, "size"),
])  # fmt: skip
def test_tiles_that_are_too_many_are_refused_with_an_option_that_the_processor_has(tmp_path, kind, options, name):
    squares = family(tmp_path, kind, plan(kind, 4096, patches=4096), **options)
    with pytest.raises(LimitError, match=rf"patches, and the encoder takes 4,096.*mm_processor_kwargs: {name}\)"):
        squares.check_fits(medium("image", squares.image(noise(260, 900), {})))


def test_what_a_refusal_names_is_an_option_of_that_processor_and_rows_are_counted_as_patches_are(tmp_path):
    for kind in _KINDS.values():
        for medium_kind, names in kind.MAKE_SMALLER.items():
            settings = kind.IMAGE_SETTINGS if medium_kind == "image" else kind.VIDEO_SETTINGS
            assert set(names.split(", ")) <= set(settings), kind
    assert set(SEEING) <= set(_KINDS)
    fitting = family(tmp_path, "qwen3_vl", plan("qwen3_vl", 16_384, rows=1000))
    found = medium("image", fitting.image(Sized(3000, 4000), {}))
    assert 900 < fitting.num_rows(found) <= 1000
