"""Qwen's pictures and videos: pixels, sampled frames, tokens and positions are those of transformers' processors."""

import itertools
from functools import partial
from types import SimpleNamespace

import numpy
import pytest
from builders.cases import for_each
from builders.tiny_sight import Clip, noise, seeing_folder, without_torchvision

from penstock.frontend.media.decoded import DecodedMedium, Layout
from penstock.frontend.media.families.table import family_of
from penstock.frontend.media.processor_files import ProcessorFiles
from penstock.frontend.media.sight import Sight
from penstock.frontend.text.tokenizer import Tokenizer
from penstock.protocol.errors import RequestError

KINDS = ("qwen2_5_vl", "qwen3_vl")
SIZES = [(1, 1), (1, 190), (300, 2), (28, 28), (27, 57), (64, 1000), (333, 517), (1080, 1920), (3000, 200), (15, 2900)]


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(tmp_path_factory, kind):
    return seeing_folder(tmp_path_factory.mktemp(kind), kind)


@pytest.fixture(scope="module")
def sight(folder):
    return Sight.of(folder, Tokenizer(folder))


def test_a_picture_is_resized_as_in_transformers_and_refused_if_it_is_too_narrow(folder, sight):
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    theirs = partial(Qwen2VLImageProcessorPil.from_pretrained(folder), do_rescale=False, do_normalize=False)
    for number, (height, width) in enumerate(SIZES):
        image = noise(height, width, number)
        wanted = theirs(image, return_tensors="np")
        frames = sight.family.image(image.convert("RGB"), {})
        ours = theirs(frames.pixels[0], do_resize=False, return_tensors="np")
        assert ours["image_grid_thw"].tolist() == wanted["image_grid_thw"].tolist(), image.size
        assert numpy.array_equal(ours["pixel_values"], wanted["pixel_values"]), image.size
        medium = DecodedMedium.of("image", frames.pixels.tobytes(), frames.layout)
        assert sight.family.num_patches(medium) == len(wanted["pixel_values"])
    with pytest.raises(RequestError, match="200 times"):
        sight.family.image(noise(2, 500), {})


def theirs_for(kind):
    part = {"qwen3_vl": "qwen3_vl", "qwen2_5_vl": "qwen2_vl"}[kind]
    return without_torchvision(f"transformers.models.{part}.video_processing_{part}")


CLIPS = [(4, 30.0), (5, 30.0), (30, 30.0), (31, 29.97), (77, 25.0), (1000, 23.976), (20000, 30.0), (90, 1.0)]


def test_the_same_frames_of_a_video_are_taken(kind, sight):
    from transformers.video_utils import VideoMetadata

    module = theirs_for(kind)
    processor = module.Qwen3VLVideoProcessor if kind == "qwen3_vl" else module.Qwen2VLVideoProcessor
    settings = SimpleNamespace(
        fps=2.0, num_frames=None, min_frames=4, max_frames=768, temporal_patch_size=2, do_sample_frames=True
    )
    for (num_frames, fps), options in itertools.product(CLIPS, ({}, {"fps": 0.7})):
        metadata = VideoMetadata(total_num_frames=num_frames, fps=fps)
        theirs = map(int, processor.sample_frames(settings, metadata, **options))
        wanted = [index for index in theirs if index < num_frames]  # single precision goes beyond the end at times
        assert sight.family.sampled(Clip(num_frames, fps), options) == wanted, (num_frames, fps, options)
    frames = sight.family.video(Clip(1), {})
    assert frames.layout.shape[0] == 2 and frames.layout.times == (0.0, 0.0)


@for_each("height, width", [(240, 320), (720, 1280), (20, 300), (2160, 3840), (5, 5)])
@for_each("num_frames", [2, 6, 7, 60, 768])
def test_frames_of_a_video_get_the_size_that_they_have_in_transformers(kind, sight, num_frames, height, width):
    least, most = sight.family.video_pixels
    pixels = {"min_pixels": least, "max_pixels": most, "factor": sight.family.factor}
    if kind == "qwen3_vl":
        pixels["num_frames"] = num_frames
    size = sight.family.video_size(num_frames, height, width, {})
    assert size == theirs_for(kind).smart_resize(height=height, width=width, **pixels)


def test_a_request_can_make_a_picture_smaller_and_not_larger_than_the_model_allows(sight):
    usual = sight.family.image(noise(1000, 1000), {}).layout.shape
    smaller = sight.family.image(noise(1000, 1000), {"max_pixels": 200_000}).layout.shape
    larger = sight.family.image(noise(1000, 1000), {"max_pixels": 10**9, "min_pixels": 10**9}).layout.shape
    assert smaller[1] * smaller[2] <= 200_000 < usual[1] * usual[2] <= larger[1] * larger[2]
    assert larger[1] * larger[2] <= sight.family.image_pixels[1]


def decoded(sight, *media):
    """Media by kind, frames, height and width; those of videos are two a second."""
    found = []
    for kind, frames, height, width in media:
        times = tuple(number / 2 for number in range(frames)) if kind == "video" else ()
        layout = Layout((frames, height, width), times=times, frame_rate=2.0 if times else 0.0)
        found.append(DecodedMedium.of(kind, bytes(frames * height * width * 3), layout))
    return found


TEXT = (
    "<|im_start|>user\nOne:<|vision_start|><|image_pad|><|vision_end|> two:<|vision_start|><|video_pad|><|vision_end|>"
    "<|vision_start|><|image_pad|><|vision_end|> and ünïcode<|im_end|>\n<|im_start|>assistant\n"
)


def their_prompt(kind, folder, sight, media):
    """Token ids and positions by transformers' own code; of its processors the part that makes texts."""
    import torch
    from transformers import PreTrainedTokenizerFast
    from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl, processing_qwen2_5_vl
    from transformers.models.qwen3_vl import modeling_qwen3_vl, processing_qwen3_vl
    from transformers.video_utils import VideoMetadata

    family = sight.family
    grids = {kind: [family.grid_of(each) for each in media if each.kind == kind] for kind in ("image", "video")}
    videos = [each for each in media if each.kind == "video"]
    is_three = kind == "qwen3_vl"
    processor = object.__new__(
        processing_qwen3_vl.Qwen3VLProcessor if is_three else processing_qwen2_5_vl.Qwen2_5_VLProcessor
    )
    processor.image_processor = SimpleNamespace(merge_size=2)
    processor.video_processor = SimpleNamespace(merge_size=2, temporal_patch_size=2)
    processor.image_token, processor.video_token = "<|image_pad|>", "<|video_pad|>"
    processor.vision_start_token, processor.vision_end_token = "<|vision_start|>", "<|vision_end|>"
    image_grids, video_grids = torch.tensor(grids["image"]), torch.tensor(grids["video"])
    inputs = {"image_grid_thw": image_grids}
    images = [processor.replace_image_token(inputs, number) for number in range(len(image_grids))]
    counts = [each.shape[0] for each in videos]
    metadata = [VideoMetadata(total_num_frames=n, fps=2.0, frames_indices=list(range(n))) for n in counts]
    inputs = {"video_grid_thw": video_grids, "video_metadata": metadata}
    (text,), _ = processor.get_text_with_replacements(
        [TEXT], images, [processor.replace_video_token(inputs, number) for number in range(len(videos))]
    )
    ids = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))(text)["input_ids"]
    kinds = [[{"<|image_pad|>": 1, "<|video_pad|>": 2}.get(sight.tokenizer.decode_token(token), 0) for token in ids]]
    vision = SimpleNamespace(spatial_merge_size=2, tokens_per_second=2)
    module = modeling_qwen3_vl.Qwen3VLModel if is_three else modeling_qwen2_5_vl.Qwen2_5_VLModel
    model = object.__new__(module)
    model.__dict__["config"] = SimpleNamespace(vision_config=vision)
    further = {} if is_three else {"second_per_grid_ts": torch.tensor([2 / 2.0])}
    given = (torch.tensor([ids]), torch.tensor(kinds), image_grids, video_grids)
    positions, delta = module.get_rope_index(model, *given, **further)
    return ids, positions[:, 0].numpy(), int(delta) + len(ids)


def test_tokens_and_positions_are_those_of_transformers_and_spans_are_where_the_rows_stand(kind, folder, sight):
    size = 2 * sight.family.factor
    media = decoded(sight, ("image", 1, size, 3 * size), ("image", 1, size, size), ("video", 6, size, 2 * size))
    ids, positions, end = their_prompt(kind, folder, sight, media)
    expanded = sight.expand(TEXT, media, is_chat=True)
    assert expanded.token_ids == ids
    ours = numpy.frombuffer(expanded.positions, numpy.int32).reshape(3, -1)
    assert ours.tolist() == positions.tolist()
    assert expanded.end_position == end
    rows = [place for place, token in enumerate(expanded.token_ids) if token in sight.row_token_ids]
    spans = [numpy.frombuffer(medium.spans, numpy.int32).reshape(-1, 2).tolist() for medium in expanded.media]
    assert [place for each in spans for start, length in each for place in range(start, start + length)] == rows
    assert [medium.kind for medium in expanded.media] == ["image", "video", "image"]
    for medium, spans_of_one in zip(expanded.media, spans):
        assert sum(length for _, length in spans_of_one) == medium.num_patches // 4
    ids = sight.tokenizer.encode(TEXT, add_special_tokens=False)  # with placeholders
    assert sight.expand(ids, media).token_ids == expanded.token_ids


@for_each("text", ["<|image_pad|><|image_pad|>", "no place", "<|video_pad|>"])
def test_a_prompt_has_as_many_placeholders_as_media_or_is_refused(sight, text):
    media = decoded(sight, ("image", 1, 64, 64))
    for prompt in (text, sight.tokenizer.encode(text, add_special_tokens=False)):
        with pytest.raises(RequestError, match="1 image.s. and 0 video.s."):
            sight.expand(prompt, media)


def test_what_somebody_typed_is_no_placeholder(sight):
    plain = [{"role": "user", "content": "nothing <|im_end|> here"}]
    assert sight.split_typed(plain) is plain
    media = decoded(sight, ("image", 1, 2 * sight.family.factor, 2 * sight.family.factor))
    typed = "I typed <|image_pad|> and <|vision_start|>, and \ufdd0<|image\ufdd0_pad|>."
    message = sight.split_typed({"role": "user", "content": [{"type": "text", "text": typed}]})
    text = f"<|vision_start|><|image_pad|><|vision_end|>{message['content'][0]['text']}"
    expanded = sight.expand(text, media, is_chat=True)
    assert sum(token in sight.row_token_ids for token in expanded.token_ids) == 4
    assert expanded.text.endswith("I typed <|image_pad|> and <|vision_start|>, and <|image_pad|>.")
    written = sight.tokenizer.decode(expanded.token_ids[6:], skip_special_tokens=False)
    assert written == expanded.text.removeprefix("<|vision_start|><|image_pad|><|vision_end|>")


def test_old_and_new_names_of_sizes_mean_the_same(tmp_path, kind):
    old = seeing_folder(tmp_path / "old", kind, preprocessor_config={"min_pixels": 5000, "max_pixels": 90000})
    sizes = {"size": {"shortest_edge": 5000, "longest_edge": 90000}}
    new = seeing_folder(tmp_path / "new", kind, preprocessor_config=sizes)
    assert family_of(ProcessorFiles.read(old)).image_pixels == family_of(ProcessorFiles.read(new)).image_pixels
    assert family_of(ProcessorFiles.read(old), {"max_pixels": 8000}).image_pixels == (5000, 8000)
    changed = {"images_kwargs": {"size": {"shortest_edge": 4, "longest_edge": 9}}}
    assert family_of(ProcessorFiles.read(old), changed).image_pixels == (4, 9)
