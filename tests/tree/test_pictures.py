"""Pictures from every side on which they come in: Python, the daemon, HTTP and batches; and what is refused there.

The worker computes nothing, and checks each plan's media: `test_media.py` of the engine has the rest of its rules.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from builders.daemon import seeing_daemon
from builders.seeing_model import NUM_ROWS, SIZE, about, as_url, picture, seeing_model
from builders.watching import loop_face

from penstock import LLM, ConfigError, RequestError, SamplingParams
from penstock.frontend.cli import main
from penstock.frontend.console import logs
from penstock.frontend.http.schemas.chat import ContentPart
from penstock.frontend.media.sources.encoded_media import OPTIONS as OPTIONS_OF_MEDIA
from penstock.frontend.requests.continuation import Continuation
from penstock.frontend.session.private import PrivateSession
from penstock.protocol.messages import Said
from penstock.protocol.wire import column

OPTIONS: dict[str, Any] = {"load_format": "stand-in", "max_model_len": 512, "mm_cache": 64, "block_size": 16}
PARAMS = SamplingParams(max_tokens=4, temperature=0)
URL = as_url(picture())
BY_URL = {"type": "image_url", "image_url": {"url": URL}}
SAY = [{"type": "text", "text": "What is it?"}]


@pytest.fixture(scope="module", autouse=True)
def verifying() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_STAND_IN_VERIFY", "1")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return seeing_model(tmp_path_factory.mktemp("models") / "seeing")


@pytest.fixture(scope="module")
def seeing(folder) -> Iterator[LLM]:
    with LLM(folder, quiet=True, **OPTIONS) as llm:
        yield llm


@pytest.fixture(scope="module")
def through_daemon(folder, tmp_path_factory) -> Iterator[LLM]:
    where = tmp_path_factory.mktemp("daemon")
    with seeing_daemon(where, folder, "--http", "127.0.0.1:0", **OPTIONS) as daemon, daemon.attach("seeing") as llm:
        llm.http = daemon.status().http
        yield llm


@pytest.fixture(params=["seeing", "through_daemon"])
def either(request) -> LLM:
    return request.getfixturevalue(request.param)


def test_an_answer_about_a_picture_is_proved_where_the_picture_is_given_again(either, tmp_path):
    red, blue = ({"type": "image_url", "image_url": {"url": as_url(picture(shade))}} for shade in (255, 77))
    url = "/v1/chat/completions"
    for name, pictures in {"asked": (blue, red), "exchanged": (red, blue)}.items():
        bodies = [{"messages": [{"role": "user", "content": [shown, *SAY]}]} for shown in pictures]
        lines = [{"custom_id": str(number), "url": url, "body": body} for number, body in enumerate(bodies)]
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    params = SamplingParams(max_tokens=4, receipt=True)
    result = either.batch(tmp_path / "asked", tmp_path / "answers", params, use_tqdm=False)
    assert (result.num_answers, result.num_failed) == (2, 0)
    found = {
        source: [verdict.sentence for verdict in either.verify(result.output, source and tmp_path / source)]
        for source in (None, "asked", "exchanged")
    }
    assert found["asked"] == ["proved"] * 2
    assert found[None] == ["not judged: its prompt has pictures or videos, which aren't given (--input)"] * 2
    assert found["exchanged"] == ["not judged: the given prompt isn't the one that was answered"] * 2


def test_a_picture_is_the_same_however_it_is_given(either, tmp_path):
    image = picture(123)  # no other test's: it is encoded here
    image.save(tmp_path / "image.png")
    file = (tmp_path / "image.png").read_bytes()
    given = (image, file, str(tmp_path / "image.png"))
    url = as_url(image)
    parts = [{"type": "image_url", "image_url": {"url": url}}, *({"type": "image", "image": each} for each in given)]
    parts.append({"type": "input_image", "image_url": url})
    encoded_before = either.stats().encoded_media
    outputs = either.chat([about(part) for part in parts], PARAMS, use_tqdm=False)
    assert either.stats().encoded_media == encoded_before + 1
    assert [(output.error_code, output.error_msg) for output in outputs] == [(200, None)] * len(parts)
    assert len({tuple(output.prompt_token_ids) for output in outputs}) == 1
    [alone] = either.chat([about()], PARAMS, use_tqdm=False)
    assert len(outputs[0].prompt_token_ids) == len(alone.prompt_token_ids) + NUM_ROWS + 2
    assert outputs[-1].num_cached_tokens == 16, "its digest is that of the first"
    [other] = either.chat([about({"type": "image", "image": picture(9)})], PARAMS, use_tqdm=False)
    assert other.num_cached_tokens == 0


def test_a_picture_with_more_rows_than_are_kept_is_made_smaller_and_far_too_many_are_not_all_decoded(either):
    larger = {"type": "image", "image": picture(size=(512, 512))}  # 256 rows, where memory keeps 64
    [output, alone] = either.chat([about(larger), about()], PARAMS, use_tqdm=False)
    assert output.error_code == 200, output.error_msg
    assert len(output.prompt_token_ids) == len(alone.prompt_token_ids) + 64 + 2
    largest = {"type": "image", "image": picture(7, (1, 1)), "min_pixels": 2**30}
    [output] = either.chat([about(*[largest] * 50)], PARAMS, use_tqdm=False)
    assert output.error_code == 400 and "The first 9 of this prompt's 50" in output.error_msg


def test_a_prompt_brings_its_pictures_beside_its_text(either):
    text = either.apply_chat_template(about(BY_URL))
    assert text.count("<|image_pad|>") == 1
    prompts = [{"multimodal_data": {"image": [picture()]}}, {"multi_modal_data": {"image": URL}}]
    [chat] = either.chat([about(BY_URL)], PARAMS, use_tqdm=False)
    given = [{"prompt": text, **media} for media in prompts]
    given.append(Continuation(given[0], [Said(column(chat.outputs.token_ids[:2]))]))
    outputs = either.generate(given, PARAMS, use_tqdm=False)
    assert [output.outputs.token_ids for output in outputs] == [chat.outputs.token_ids] * 3
    assert [*either.stream(about(BY_URL), PARAMS)][-1].finished

    async def last_piece() -> Any:
        return [piece async for piece in loop_face(either).stream(about(BY_URL), PARAMS)][-1]

    assert asyncio.run(last_piece()).finished


def test_what_is_wrong_with_a_picture_ends_its_request_alone(either, tmp_path):
    wrong = {
        "No such file": [{"type": "image", "image": str(tmp_path / "nowhere.png")}],
        "no format": [{"type": "image", "image": b"no picture"}], "limit_mm_per_prompt": [BY_URL] * 101,
        "holds no image": [{"type": "image"}],
        "mm_cache keeps 64.*max_frames": [{"type": "video", "video": [picture()] * 300}],  # a row for each two frames
    }  # fmt: skip
    *refused, answered = either.chat([*(about(*parts) for parts in wrong.values()), about(BY_URL)], PARAMS, False)
    assert answered.error_code == 200
    for output, words in zip(refused, wrong, strict=True):
        assert output.error_code == 400 and re.search(words, output.error_msg), output.error_msg
    for source, words in ((5, "is int"), (b"", "empty"), ("/nosuch.png", "No such"), ("ftp://x/y.png", "an address")):
        for call in (either.chat, either.stream):  # of a conversation by itself
            with pytest.raises(RequestError, match=words):
                call(about({"type": "image", "image": source}), PARAMS)
    placeholder = either.get_tokenizer().token_to_id("<|image_pad|>")
    shown = {"multimodal_data": {"image": picture()}}
    prompts = [
        either.apply_chat_template(about(BY_URL)), {"prompt": "hello", "image": URL},
        {"prompt": "no place", "multimodal_data": {"image": URL}}, "\uff1c|image_pad|\uff1e <|video_pad|>",
        {"prompt_token_ids": [5, placeholder, 6]}, {"prompt_token_ids": [5, placeholder, placeholder], **shown},
        {"prompt": "<|video_pad|>", **shown},
    ]  # fmt: skip
    outputs = either.generate(prompts, PARAMS, use_tqdm=False)
    for output, words in zip(outputs, ["multimodal_data"] * 2 + ["placeholder"] * 5, strict=True):
        assert output.error_code == 400 and words in output.error_msg


def test_a_typed_placeholder_is_text(either):
    typed, with_picture = about(text="<|image_pad|>"), about(BY_URL, text="<|image_pad|>")
    outputs = either.chat([typed, with_picture], PARAMS, use_tqdm=False)
    assert [output.error_code for output in outputs] == [200, 200]
    placeholder = either.get_tokenizer().token_to_id("<|image_pad|>")
    assert [list(output.prompt_token_ids).count(placeholder) for output in outputs] == [0, NUM_ROWS]
    assert "<|image_pad|>" in outputs[0].prompt and "\ufdd0" not in outputs[0].prompt
    assert either.apply_chat_template(typed) == outputs[0].prompt


def test_a_prompt_that_is_refused_late_lets_its_pictures_go_and_salts_share_no_prefix(seeing):
    params = SamplingParams(max_length=2)  # fewer than the prompt has
    prompt = {"prompt": "<|image_pad|>", "multimodal_data": {"image": picture()}}
    [request] = seeing._session.door.admit([*seeing._session.door.parse([prompt], params)], lambda request: None)
    assert "leaves no token" in request.output.error_msg
    assert request.prompt.media == [] and request.refusal.__traceback__ is None

    def cached(shade: int, salt: str | None) -> int:
        params = SamplingParams(max_tokens=1, cache_salt=salt)
        part = {"type": "image", "image": picture(shade)}
        [output] = seeing.chat([about(part)], params, use_tqdm=False)
        assert output.error_code == 200
        return int(output.num_cached_tokens)

    assert [cached(201, "a"), cached(201, "b"), cached(201, None)] == [0, 0, 0]
    assert cached(201, "a") > 0 and cached(202, "a") == 0


def test_a_batch_opens_no_files(folder, tmp_path, capsys):
    lines = [
        {"messages": about(BY_URL)},
        {"messages": about({"type": "image_url", "image_url": {"url": "file:///etc/hostname"}})},
        {"prompt": "What is it?", "multimodal_data": {"image": URL}},
        {"prompt": "What is it?", "multimodal_data": {"image": "/etc/hostname"}},
        {"prompt": "What is it?", "multimodal_data": {"images": [URL]}},
        {"prompt": "What is it?", "multimodal_data": None},
    ]
    written = [json.dumps({"id": number, **line}) for number, line in enumerate(lines)]
    (tmp_path / "in.jsonl").write_text("\n".join(written))
    files = ["--input", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    main(["generate", str(folder), *files, "--load-format", "stand-in", "--format", "jsonl", "--max-tokens", "4"])
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert {each["id"] for each in found if "data: URL" in json.dumps(each)} == {1, 3}
    lengths = {each["id"]: each["usage"]["prompt_tokens"] for each in found}
    assert lengths[0] == lengths[2] == lengths[4] > lengths[5] + NUM_ROWS > NUM_ROWS


def test_over_http_pictures_come_as_data_urls(through_daemon, folder):
    assert {*OPTIONS_OF_MEDIA, "detail"} <= set(ContentPart.__struct_fields__), "parts may say all there is to say"

    def ask(path: str, **body: Any) -> tuple[int, Any]:
        reply = httpx.post(through_daemon.http + path, json={"model": "seeing", **body}, timeout=60)
        return reply.status_code, reply.json()

    status, chat = ask("/v1/chat/completions", messages=about(BY_URL), max_tokens=4)
    assert status == 200 and chat["usage"]["prompt_tokens"] > NUM_ROWS
    status, longest = ask("/v1/chat/completions", messages=about(BY_URL), ignore_eos=True)
    assert status == 200 and longest["usage"]["total_tokens"] == OPTIONS["max_model_len"]
    assert longest["usage"]["prompt_tokens_details"]["cached_tokens"] == 16, "rows are cached as text is"
    assert chat["usage"]["prompt_tokens_details"]["image_tokens"] == NUM_ROWS
    assert chat["usage"]["prompt_tokens_details"]["video_tokens"] == 0
    status, counted = ask("/tokenize", messages=about(BY_URL))
    assert status == 200 and counted["count"] == len(counted["tokens"]) == chat["usage"]["prompt_tokens"]
    status, error = ask("/tokenize", messages=about(*[BY_URL] * 101))
    assert status == 400 and "limit_mm_per_prompt" in error["error"]["message"]
    part = {"type": "input_image", "image_url": URL}
    item = {"role": "user", "content": [part, {"type": "input_text", "text": "What is it?"}]}
    status, response = ask("/v1/responses", input=[item], max_output_tokens=4)
    assert status == 200 and response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    data = URL.partition(",")[2]
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        status, message = ask(path, messages=[{"role": "user", "content": [block, *SAY]}], max_tokens=4)
        usage = message.get("usage", message)
        num_prompt = usage["input_tokens"] + usage.get("cache_read_input_tokens", 0)
        assert status == 200 and num_prompt == chat["usage"]["prompt_tokens"]
    line = {"role": "user", "content": "What is it?", "images": [data]}
    status, found = ask("/api/chat", messages=[line], stream=False, options={"num_predict": 4})
    assert status == 200 and found["prompt_eval_count"] == chat["usage"]["prompt_tokens"]
    for url in (str(folder / "config.json"), "http://localhost/x.png"):
        asked = about({"type": "image_url", "image_url": {"url": url}})
        status, error = ask("/v1/chat/completions", messages=asked)
        assert status == 400 and "data: URL" in error["error"]["message"]


def test_options_say_that_a_model_sees_nothing_or_fewer_and_smaller_pictures(folder, monkeypatch):
    said: list[str] = []
    with pytest.raises(ConfigError, match="enable_mm=True"):
        LLM("pocket", enable_mm=True)
    monkeypatch.setattr(logs, "say", lambda text, *, quiet: said.append(text))
    given = {"mm_processor_kwargs": {"image_min_pixel": 100, "nonsense": "x"}, "limit_mm_per_prompt": {"image": 1}}
    PrivateSession("pocket", given)  # starts nothing
    assert [line for line in said if "mm_" in line] == [
        f"{name} has no effect: this model sees no pictures and no videos." for name in given
    ]
    with pytest.raises(ConfigError, match="max_pixles.*max_pixels"):
        LLM(folder, mm_processor_kwargs={"max_pixles": 10**6})
    with pytest.raises(ConfigError, match="limit_mm_per_prompt"):
        LLM(folder, limit_mm_per_prompt={"image": -1})
    with LLM(folder, quiet=True, **OPTIONS, enable_mm=False) as llm:
        [output, text] = llm.chat([about(BY_URL), about()], PARAMS, use_tqdm=False)
        assert (output.error_code, text.error_code) == (400, 200)
        [output] = llm.generate([{"prompt": "x", "multimodal_data": {"image": URL}}], PARAMS, use_tqdm=False)
        assert output.error_code == 400 and "sees no pictures" in output.error_msg
    options = {"limit_mm_per_prompt": {"image": 1}, "mm_processor_kwargs": {"max_pixels": SIZE[0] * SIZE[1] // 4}}
    with LLM(folder, quiet=True, **OPTIONS, **options) as llm:
        outputs = llm.chat([about(BY_URL), about(BY_URL, BY_URL), about()], PARAMS, use_tqdm=False)
        assert [output.error_code for output in outputs] == [200, 400, 200]
        assert len(outputs[0].prompt_token_ids) < len(outputs[2].prompt_token_ids) + NUM_ROWS


def test_a_model_that_is_started_again_still_sees(folder):
    """The daemon does so where memory was short at first."""
    session = PrivateSession.open(folder, {"quiet": True, **OPTIONS})
    session.transport.close()
    session.start()
    try:
        session.wait_until_ready()
        [prompt] = session.render_batch([about(BY_URL)])
        [request] = session.door.admit(list(session.door.parse([prompt], PARAMS)), print)
        assert request.refusal is None
    finally:
        session.transport.close()
