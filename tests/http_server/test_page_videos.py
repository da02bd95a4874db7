"""Videos on the page in a real Chromium: frames are taken, shown, sent, kept, exported and imported."""

import base64
import io
import json
from collections.abc import Iterator

import av
import pytest
from builders.browser import Page
from builders.page import answer_with, ask, assert_nothing_from_elsewhere, opened, sent, texts, whole
from PIL import Image, ImageStat

SEES = "cards[0].architecture = { input_modalities: ['text', 'image', 'video'] }; showWhatIsTaken(); 0"
COLOURS = ("red", "lime", "blue")


@pytest.fixture
def page(chromium, server) -> Iterator[Page]:
    page = opened(chromium, server.address)
    answer_with(page, whole("First"), whole("Second"))
    page.value("window.saved = []; save = (name, kind, text) => saved.push(text); 0")
    yield page
    assert_nothing_from_elsewhere(page, server.address)
    page.close()


def film(size: tuple[int, int] = (800, 400), seconds: int = 1) -> str:
    """An expression for a file of the browser's: each colour lasts so many seconds."""
    file = io.BytesIO()
    with av.open(file, "w", format="webm") as container:
        stream = container.add_stream("libvpx", rate=10)
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for colour in COLOURS:
            for _ in range(10 * seconds):
                container.mux(stream.encode(av.VideoFrame.from_image(Image.new("RGB", size, colour))))
        container.mux(stream.encode())
    content = base64.b64encode(file.getvalue()).decode()
    array = f"Uint8Array.from(atob('{content}'), (each) => each.charCodeAt(0))"
    return f"new File([{array}], 'a.webm', {{type: 'video/webm'}})"


def colour_of(url: str) -> tuple[str, tuple[int, int]]:
    image = Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))
    means = ImageStat.Stat(image.convert("RGB")).mean
    return COLOURS[means.index(max(means))], image.size


def test_a_video_is_sent_as_its_frames_and_played_in_the_conversation(page):
    page.value(SEES)
    assert page.value("$('attach').title") == "Attach pictures, videos, or text files"
    transfer = f"const dataTransfer = new DataTransfer(); dataTransfer.items.add({film()})"
    page.value(f"{{ {transfer}; $('view-talk').dispatchEvent(new DragEvent('drop', {{ dataTransfer }})); }} 0")
    page.until("document.querySelectorAll('.chip img').length === 1")
    ask(page, "What happens?")
    [video, text] = sent(page)[0]["messages"][0]["content"]
    assert (video["type"], text["text"]) == ("video", "What happens?")
    assert 1.8 < video["sample_fps"] < 2.2
    assert [colour_of(url) for url in video["video"]] == [(each, (640, 320)) for each in COLOURS for _ in range(2)]
    assert texts(page, ".picture small") == ["a.webm · 6 frames"]
    page.click(".picture")
    first = page.value("document.querySelector('.picture img').src")
    page.until(f"document.querySelector('.picture img').src !== {json.dumps(first)}")


def test_long_videos_are_few_frames_and_all_of_them_fit_into_a_request(page):
    page.value(f"{SEES}; window.MOST = MOST_FRAME_CHARACTERS; 0")
    page.value(f"attach([{film((320, 240), seconds=8)}])")
    page.until("attached.length === 1")
    frames = page.value("attached[0].frames")
    assert len(frames) == 32 and sum(map(len, frames)) <= page.value("MOST")
    assert [colour for colour, _ in map(colour_of, (frames[0], frames[15], frames[31]))] == list(COLOURS)


def test_videos_stay_over_reloads_exports_and_imports(page):
    page.value(f"{SEES}; attach([{film((64, 32))}])")
    page.until("attached.length === 1")
    ask(page, "What happens?")
    video = sent(page)[0]["messages"][0]["content"][0]
    page.value("$('export-json').click(); 0")
    [exported] = page.value("saved")
    theirs = json.loads(exported)["conversations"][0]["openai"]
    page.reload()
    page.until("document.querySelectorAll('.message.user img').length === 1")
    for content in (exported, json.dumps(theirs)):
        page.value(f"bringIn([new File([{json.dumps(content)}], 'own.json')])")
        page.until("$('toast').textContent === '1 conversation imported.'")
        kept = page.value("[...conversations.values()].at(-1).messages[0].pictures[0]")
        assert (kept["frames"], kept["rate"]) == (video["video"], video["sample_fps"])
        page.value("$('toast').textContent = ''; 0")


def test_what_is_no_video_or_is_not_seen_is_refused_with_a_sentence(page):
    page.value(f"{SEES}; attach([new File(['no'], 'broken.mp4', {{type: 'video/mp4'}})])")
    page.until("$('toast').textContent")
    assert texts(page, "#toast")[0].startswith("broken.mp4 can't be played by this browser.")
    page.value("cards[0].architecture.input_modalities.pop(); attach([new File([''], 'a.mp4', {type: 'video/mp4'})])")
    page.until("$('toast').textContent.includes('sees no videos')")
    page.value("attached = [{ name: 'a', url: 'data:,', frames: ['data:,'], rate: 1 }]; 0")
    ask(page, "What is it?")
    assert sent(page) == [] and "sees no videos, and this conversation has some" in texts(page, ".complaint")[0]
