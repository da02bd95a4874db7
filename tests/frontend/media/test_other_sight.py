"""ERNIE-4.5-VL, Gemma 3 and SmolVLM: pixels, frames, tokens and positions are those of transformers' processors."""

import io
import itertools
import math
from types import SimpleNamespace

import numpy
import pytest
from builders.cases import for_each
from builders.tiny_sight import SEEING, Clip, noise, seeing_folder, without_torchvision
from jinja2 import Environment
from PIL import Image, ImageFont

from penstock.frontend.media.decoded import DecodedMedium, Layout
from penstock.frontend.media.families.ernie import written_time
from penstock.frontend.media.families.smolvlm import in_words
from penstock.frontend.media.families.table import family_of
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.frontend.media.sight import Sight
from penstock.frontend.text.tokenizer import Tokenizer

SIZES = [(1, 1), (1, 190), (300, 2), (513, 511), (333, 917), (2100, 200)]
PLAIN = {"do_rescale": False, "do_normalize": False, "return_tensors": "np"}


def sight_of(tmp_path, kind, **options):
    folder = seeing_folder(tmp_path / kind, kind)
    return Sight.of(folder, Tokenizer(folder), **options)


def decoded(kind, frames):
    return DecodedMedium.of(kind, frames.pixels.tobytes(), frames.layout)


@for_each("height, width", SIZES)
def test_ernie_resizes_pictures_as_in_transformers(tmp_path, height, width):
    from transformers.models.ernie4_5_vl_moe import image_processing_pil_ernie4_5_vl_moe as module

    family, image = sight_of(tmp_path, "ernie4_5_moe_vl").family, noise(height, width)
    theirs = module.Ernie4_5_VLMoeImageProcessorPil(size={"shortest_edge": 3136, "longest_edge": 4816896})
    wanted = theirs(image, **PLAIN)["pixel_values"]
    frames = family.image(image, {})
    assert numpy.array_equal(theirs(frames.pixels[0], do_resize=False, **PLAIN)["pixel_values"], wanted)
    assert family.num_patches(decoded("image", frames)) == len(wanted)
    unsized = seeing_folder(tmp_path / "unsized", "ernie4_5_moe_vl", preprocessor_config={})
    size = module.Ernie4_5_VLMoeImageProcessorPil.size
    assert family_of(ProcessorFiles.read(unsized)).image_pixels == (size["shortest_edge"], size["longest_edge"])


@for_each("num_frames", [16, 17, 100, 181, 5000])
@for_each("options", [{}, {"fps": 2.0}, {"max_frames": 30}])
def test_ernie_samples_the_frames_that_transformers_samples(tmp_path, num_frames, options):
    from transformers.video_utils import VideoMetadata

    module = without_torchvision("transformers.models.ernie4_5_vl_moe.video_processing_ernie4_5_vl_moe")
    settings = SimpleNamespace(num_frames=None, min_frames=16, max_frames=180)
    metadata = VideoMetadata(total_num_frames=num_frames, fps=25.0)
    theirs = module.Ernie4_5_VLMoeVideoProcessor.sample_frames(settings, metadata, **options)
    wanted = [int(index) for index in theirs if index < num_frames]
    assert sight_of(tmp_path, "ernie4_5_moe_vl").family.sampled(Clip(num_frames), options) == wanted


def test_ernie_draws_the_time_of_each_frame_into_it_as_transformers_does(tmp_path):
    module = without_torchvision("transformers.models.ernie4_5_vl_moe.video_processing_ernie4_5_vl_moe")
    processor = module.Ernie4_5_VLMoeVideoProcessor
    for seconds in (0.0, 3.04, 59.999, 61.5, 3725.25):
        assert written_time(seconds) == processor._convert_timestamp(None, seconds)
    frame = noise(200, 320)
    with_its_font = SimpleNamespace(font=io.BytesIO(ImageFont.load_default(20).font_bytes))
    theirs = processor._render_image_with_timestamp(with_its_font, numpy.asarray(frame), "time: 00:00:03.04")
    drawn = sight_of(tmp_path, "ernie4_5_moe_vl").family._drawn(frame, 3.04)
    assert numpy.array_equal(numpy.asarray(drawn), theirs) and not numpy.array_equal(numpy.asarray(frame), theirs)
    folder = seeing_folder(tmp_path, "ernie4_5_moe_vl")
    (folder / "Roboto-Regular.ttf").write_bytes(ImageFont.load_default(20).font_bytes)
    assert family_of(ProcessorFiles.read(folder)).font == str(folder / "Roboto-Regular.ttf")


def test_ernie_makes_an_odd_number_of_frames_even_and_lets_go_of_the_video_rows_by_pairs(tmp_path):
    sight = sight_of(tmp_path, "ernie4_5_moe_vl")
    frames = sight.family.video(Clip(17), {})
    medium = decoded("video", frames)
    assert frames.pixels.shape[0] == 18 and numpy.array_equal(frames.pixels[16], frames.pixels[17])
    text = "Video 1:<|VIDEO_START|><|video@placeholder|><|VIDEO_END|>"
    expanded = sight.expand(text, [medium])
    assert sum(token in sight.row_token_ids for token in expanded.token_ids) == sight.family.num_patches(medium) // 8


def test_ernies_positions_are_those_of_transformers(tmp_path):
    import torch
    from transformers.models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe import Ernie4_5_VLMoeModel

    sight = sight_of(tmp_path, "ernie4_5_moe_vl")
    media = [
        DecodedMedium.of("image", b"", Layout((1, 56, 84))),
        DecodedMedium.of("video", b"", Layout((6, 28, 112), times=(0.0,) * 6, frame_rate=2.0)),
    ]
    text = "a<|IMAGE_START|><|image@placeholder|><|IMAGE_END|> and <|VIDEO_START|><|video@placeholder|><|VIDEO_END|> b"
    expanded = sight.expand(text, media, is_chat=True)
    kinds = numpy.zeros(len(expanded.token_ids), int)
    for medium in expanded.media:
        for start, length in numpy.frombuffer(medium.spans, numpy.int32).reshape(-1, 2):
            kinds[start : start + length] = 1 if medium.kind == "image" else 2
    model = object.__new__(Ernie4_5_VLMoeModel)
    vision = SimpleNamespace(spatial_merge_size=2, temporal_merge_size=2)
    model.__dict__["config"] = SimpleNamespace(vision_config=vision)
    grids = [torch.tensor([sight.family.grid_of(medium)]) for medium in media]
    wanted, _ = Ernie4_5_VLMoeModel.get_rope_index(
        model, torch.tensor([expanded.token_ids]), torch.tensor(kinds[None]), *grids
    )
    ours = numpy.frombuffer(expanded.positions, numpy.int32).reshape(3, -1)
    assert ours.tolist() == wanted[:, 0].tolist()


def same_gemma(folder, image, **options):
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

    family = family_of(ProcessorFiles.read(folder), options)
    crops = {"min_crop_size": 256, "max_num_crops": 4, "min_ratio_to_activate": 1.2}
    crops = {f"pan_and_scan_{name}": value for name, value in crops.items()}
    wanted = Gemma3ImageProcessorPil.from_pretrained(folder)(image, **crops, **options, **PLAIN)
    frames = family.image(image, {})
    assert numpy.array_equal(numpy.moveaxis(frames.pixels, 3, 1), numpy.stack(wanted["pixel_values"])), image.size
    return decoded("image", frames), wanted["num_crops"]


@for_each("height, width, num_crops", [(1, 1, 0), (300, 2, 0), (400, 400, 0), (333, 917, 3), (600, 2100, 4)])
def test_gemmas_crops_and_tokens_are_those_of_transformers(tmp_path, height, width, num_crops):
    from transformers import PreTrainedTokenizerFast
    from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

    folder = seeing_folder(tmp_path / "gemma3", "gemma3")
    same_gemma(folder, noise(height, width), do_pan_and_scan=False)
    medium, found = same_gemma(folder, noise(height, width), do_pan_and_scan=True)
    assert int(found[0]) == num_crops
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    processor = object.__new__(Gemma3Processor)
    processor.image_token = "<start_of_image>"
    rows = "<image_soft_token>" * 256
    processor.full_image_sequence = f"\n\n<start_of_image>{rows}<end_of_image>\n\n"
    text = "user\n<start_of_image>what is it?"
    replacement = processor.replace_image_token({"num_crops": [num_crops]}, 0)
    expanded = Sight.of(folder, Tokenizer(folder), None, {"do_pan_and_scan": True}).expand(text, [medium])
    assert expanded.token_ids == theirs(text.replace("<start_of_image>", replacement))["input_ids"]
    assert expanded.positions == b"" and expanded.media[0].num_patches == (num_crops + 1) * 64 * 64


def same_smol(folder, image, **options):
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    family = family_of(ProcessorFiles.read(folder), options)
    wanted = Idefics3ImageProcessorPil.from_pretrained(folder)(image, return_row_col_info=True, **options, **PLAIN)
    frames = family.image(image, {})
    assert numpy.array_equal(numpy.moveaxis(frames.pixels, 3, 1), wanted["pixel_values"][0]), image.size
    assert frames.layout.tiles == (wanted["rows"][0][0], wanted["cols"][0][0])
    return decoded("image", frames)


@for_each("height, width", SIZES)
def test_smolvlms_tiles_and_tokens_are_those_of_transformers(tmp_path, height, width):
    from transformers import PreTrainedTokenizerFast
    from transformers.models.idefics3.processing_idefics3 import Idefics3Processor

    folder = seeing_folder(tmp_path / "smolvlm", "smolvlm")
    assert same_smol(folder, noise(height, width), do_image_splitting=False).shape == (1, 512, 512)
    medium = same_smol(folder, noise(height, width))
    processor = object.__new__(Idefics3Processor)
    processor.fake_image_token, processor.image_token = "<fake_token_around_image>", "<image>"
    processor.global_image_tag, processor.image_seq_len = "<global-img>", 64
    rows, columns = medium.layout.tiles
    replacement = processor.replace_image_token({"rows": [[rows]], "cols": [[columns]]}, 0)
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    text = "<|start|>User:<image>What is it?<end_of_utterance>\nAssistant:"
    expanded = Sight.of(folder, Tokenizer(folder)).expand(text, [medium])
    assert expanded.token_ids == theirs(text.replace("<image>", replacement))["input_ids"]
    assert math.prod(medium.shape) == medium.shape[0] * 512 * 512
    assert expanded.media[0].num_patches == medium.shape[0] * 1024


def test_a_model_of_text_has_no_sight(tmp_path):
    folder = seeing_folder(tmp_path, "gemma3", config={"model_type": "gemma3_text"})
    assert Sight.of(folder, Tokenizer(folder)) is None


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


CLIPS = [(1, 30.0), (2, 24.0), (30, 30.0), (45, 30.0), (31, 29.97), (77, 25.0), (1000, 23.976), (1990, 30.0)]
CLIPS += [(2040, 30.0), (20_000, 30.0), (90, 1.0), (300_000, 60.0), (3, 1.3)]


def test_the_same_frames_are_taken(module, folder):
    settings = SimpleNamespace(num_frames=64, fps=1)
    sampled = ({}, {"fps": 2.0}, {"num_frames": 5}, {"fps": 0.1, "num_frames": 30}, {"fps": 0.1, "num_frames": 2})
    for (num_frames, fps), options in itertools.product(CLIPS, sampled):
        clip = Clip(num_frames, fps)
        theirs = module.SmolVLMVideoProcessor.sample_frames(settings, metadata(clip), **options)
        assert family(folder, **options).sampled(clip, {}) == theirs.tolist(), (num_frames, fps, options)


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
