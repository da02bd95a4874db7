"""SmolVLM's videos: sampled frames, their sizes, and the text around them are those of transformers' processor."""

import itertools
from types import SimpleNamespace

import numpy
import pytest
from builders.cases import for_each
from builders.tiny_sight import SEEING, Clip, seeing_folder, without_torchvision
from jinja2 import Environment
from PIL import Image

from penstock.frontend.media.decoded import DecodedMedium
from penstock.frontend.media.families.smolvlm import in_words
from penstock.frontend.media.families.table import family_of
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.frontend.media.sight import Sight
from penstock.frontend.text.tokenizer import Tokenizer

PUBLISHED = SEEING["smolvlm"]["preprocessor_config.json"] | {
    "video_sampling": {"fps": 1, "max_frames": 64, "video_size": {"longest_edge": 2048}}
}


@pytest.fixture(scope="module")
def module():
    return without_torchvision("transformers.models.smolvlm.video_processing_smolvlm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return seeing_folder(tmp_path_factory.mktemp("smolvlm"), "smolvlm", preprocessor_config=PUBLISHED)


def family(folder, **options):
    return family_of(ProcessorFiles.read(folder), options)


def metadata(clip):
    from transformers.video_utils import VideoMetadata

    return VideoMetadata(total_num_frames=clip.num_frames, fps=clip.fps, duration=clip.num_frames / clip.fps)


def same_frames(module, folder, clip, **options):
    settings = SimpleNamespace(num_frames=64, fps=1)
    theirs = module.SmolVLMVideoProcessor.sample_frames(settings, metadata(clip), **options)
    assert family(folder, **options).sampled(clip, {}) == theirs.tolist(), (clip.num_frames, clip.fps, options)


CLIPS = [(1, 30.0), (2, 24.0), (30, 30.0), (45, 30.0), (31, 29.97), (77, 25.0), (1000, 23.976), (1990, 30.0)]
CLIPS += [(2040, 30.0), (20_000, 30.0), (90, 1.0), (300_000, 60.0)]
ANY_CLIPS = list(itertools.product(range(1, 9000, 41), (8.0, 24.0, 29.97, 60.0)))


@pytest.mark.parametrize("clips", [CLIPS, pytest.param(ANY_CLIPS, marks=pytest.mark.long)], ids=["some", "any"])
def test_the_same_frames_are_taken(module, folder, clips):
    for num_frames, fps in clips:
        for options in ({}, {"fps": 2.0}, {"num_frames": 5}, {"fps": 0.1, "num_frames": 30}):
            same_frames(module, folder, Clip(num_frames, fps), **options)


def test_a_request_takes_fewer_frames_and_never_more(folder):
    smol, clip = family(folder), Clip(3000, 30.0)
    assert len(smol.sampled(clip, {"max_frames": 7})) == 7
    assert len(smol.sampled(clip, {"num_frames": 500, "fps": 60.0})) == 64
    assert len(smol.sampled(clip, {"fps": 0.05})) == 5
    assert len(smol.sampled(clip, {"fps": 0.05, "min_frames": 20})) == 20


class Sized(numpy.ndarray):
    def size(self):
        return self.shape


@for_each("height, width", [(160, 90), (333, 917), (1, 400), (100, 100)])
def test_frames_are_resized_twice_as_in_transformers(module, folder, height, width):
    """There a frame is a tensor, which only torchvision resizes; sizes are compared, and pixels with Pillow's."""
    clip = Clip(2, 1.0, height, width)
    frames = family(folder).video(clip, {})
    first = module.get_resize_output_image_size(numpy.empty((3, height, width)).view(Sized), 2048)
    for pixels, (_, picture) in zip(frames.pixels, clip.frames(range(2)), strict=True):
        frame = picture.resize(first[::-1], Image.Resampling.LANCZOS)
        assert numpy.array_equal(pixels, numpy.asarray(frame.resize((512, 512), Image.Resampling.LANCZOS)))


@for_each("num_frames, fps", [(1, 24.0), (61, 30.0), (21 * 25, 25.0), (4000, 30.0), (260_000, 60.0)])
def test_the_text_around_frames_is_that_of_transformers(folder, num_frames, fps):
    from transformers.models.smolvlm import processing_smolvlm

    smol, clip = family(folder, num_frames=6, size={"longest_edge": 512}), Clip(num_frames, fps, 8, 8)
    frames = smol.video(clip, {})
    medium = DecodedMedium.of("video", frames.pixels.tobytes(), frames.layout)
    processor = object.__new__(processing_smolvlm.SmolVLMProcessor)
    processor.fake_image_token, processor.image_token = "<fake_token_around_image>", "<image>"
    processor.global_image_token, processor.image_seq_len = "<global-img>", 64
    theirs = metadata(clip)
    theirs.frames_indices = smol.sampled(clip, {})
    inputs = {"pixel_values": numpy.empty((1, *medium.shape)), "video_metadata": [theirs]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processing_smolvlm, "num2words", in_words)
        expected = processor.replace_video_token(inputs, 0)
    sight = Sight.of(folder, Tokenizer(folder))
    expanded = sight.expand("User:<video>What is it?", [medium])
    assert expanded.token_ids == Tokenizer(folder).encode(f"User:{expected}What is it?", True)
    assert len(expanded.media[0].spans) // 8 == medium.shape[0]


@for_each("number, words", [
    (1, "one"), (13, "thirteen"), (20, "twenty"), (21, "twenty-one"), (100, "one hundred"),
    (612, "six hundred and twelve"), (1007, "one thousand and seven"), (4096, "four thousand and ninety-six"),
    (1100, "one thousand, one hundred"),
])  # fmt: skip
def test_numbers_are_words_as_in_num2words(number, words):
    assert in_words(number) == words


def test_a_conversation_with_a_video_has_the_text_of_transformers_template_for_videos(folder):
    """The published template writes nothing for a video."""
    from transformers.models.smolvlm.processing_smolvlm import DEFAULT_CHAT_TEMPLATE

    published = DEFAULT_CHAT_TEMPLATE.replace("{% elif line['type'] == 'video' %}{{ '<video>' }}", "")
    parts = [{"type": "video"}, {"type": "image"}, {"type": "text", "text": "Is <video> a word?"}]
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": [{"type": "text", "text": "Yes."}]},
    ]
    sight = Sight.of(folder, Tokenizer(folder))
    ours = Environment().from_string(published).render(messages=sight.split_messages(messages))
    wanted = Environment().from_string(DEFAULT_CHAT_TEMPLATE).render(messages=messages)
    assert sight.without_cuts(ours) == wanted
    assert ours.count("<video>") == 1, "the one that is a video"
