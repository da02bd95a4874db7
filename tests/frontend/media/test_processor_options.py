"""`mm_processor_kwargs`: every option of every processor takes what its encoder can compute, and refuses all else."""

import math

import pytest
from builders.cases import for_each
from builders.tiny_sight import SEEING, noise, seeing_folder

from penstock import LLM
from penstock.frontend.media.decoded import DecodedMedium
from penstock.frontend.media.families.frames import Video
from penstock.frontend.media.families.table import _KINDS, family_of
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.protocol.errors import ConfigError, RequestError

ODD = [
    0, -1, 1, 2, 3, 0.5, 1.5, 7, 64, 1e-300, 1e300, 2**31, 2**40, 10**30, True, False, "", "4", "all", [], [4], [[4]],
    {}, {"longest_edge": 3}, {"longest_edge": 0}, {"longest_edge": "x"}, {"shortest_edge": 10**6, "longest_edge": 5},
    {"height": 2, "width": 2}, {"height": 896, "width": 10**9}, {"longest_edge": {"longest_edge": 4}}, {"": 1},
    {"longest_edge": 2**31}, {"longest_edge": 513},
]  # fmt: skip


class Clip(Video):
    fps, height, width, num_frames = 25.0, 60, 90, 7

    def frames(self, indices):
        image = noise(self.height, self.width)
        return ((index, image) for index in indices)


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
    image, clip, taken = noise(300, 500), Clip(), 0
    for name in sorted({*family_class.IMAGE_SETTINGS, *family_class.VIDEO_SETTINGS}):
        for value in ODD:
            try:
                family = family_of(files, {name: value})
            except ConfigError:
                continue
            taken += 1
            for medium_kind in family.kinds:
                try:
                    frames = family.image(image, {}) if medium_kind == "image" else family.video(clip, {})
                except RequestError:
                    continue
                medium = DecodedMedium(medium_kind, b"", frames.layout, b"")
                check_encoder_takes(family, files.vision, medium)
    assert taken >= 5


@for_each("kind, given", [
    ("gemma3", {"size": {"height": 448, "width": 448}}), ("gemma3", {"size": {"longest_edge": 896}}),
    ("gemma3", {"size": 896}), ("smolvlm", {"max_image_size": {"longest_edge": 256}}),
    ("smolvlm", {"max_image_size": 512}), ("qwen3_vl", {"size": [5, 6]}), ("qwen3_vl", {"size": {}}),
    ("qwen3_vl", {"images_kwargs": {"size": {"height": 5}}}), ("qwen3_vl", {"images_kwargs": 5}),
    ("qwen2_5_vl", {"patch_size": 16}), ("qwen2_5_vl", {"do_resize": False}), ("smolvlm", {"max_pixels": 10**6}),
])  # fmt: skip
def test_what_a_processor_cannot_take_is_refused_with_a_sentence(tmp_path, kind, given):
    files = ProcessorFiles.read(seeing_folder(tmp_path, kind))
    with pytest.raises(ConfigError, match=r"size|patch|resize|images_kwargs|max_pixels"):
        family_of(files, given)


@for_each("given", [
    {"max_pixels": float("nan")}, {"max_pixels": float("inf")}, {"max_pixels": object()}, {5: 6}, [5], 7, "x", "[5]",
    {"max_pixels": b"5"},
])  # fmt: skip
def test_what_is_no_plain_dict_is_refused_before_anything_starts(tmp_path, given):
    with pytest.raises(ConfigError, match="mm_processor_kwargs"):
        LLM(seeing_folder(tmp_path, "gemma3"), mm_processor_kwargs=given)


def test_values_that_are_nested_without_end_are_refused(tmp_path):
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ConfigError, match="mm_processor_kwargs"):
        LLM(seeing_folder(tmp_path, "qwen3_vl"), mm_processor_kwargs={"size": nested})


@for_each("kind", SEEING)
def test_a_value_of_none_is_as_if_left_out(tmp_path, kind):
    files = ProcessorFiles.read(seeing_folder(tmp_path, kind))
    names = {*_KINDS[kind].IMAGE_SETTINGS, *_KINDS[kind].VIDEO_SETTINGS}
    assert family_of(files, dict.fromkeys(names)) == family_of(files)


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
