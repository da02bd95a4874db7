"""Pictures and videos on the page in a real Chromium: made small, shown, sent, kept, exported and imported."""

import base64
import io
import json

import httpx
import pytest
from builders.films import film
from builders.page import Page, answer_with, ask, assert_nothing_from_elsewhere, sent, texts, whole
from builders.served import running_model, served
from PIL import Image, ImageStat

pytestmark = pytest.mark.long

SEES = "cards[0].architecture = { input_modalities: ['text', 'image'] }; showWhatIsTaken(); 0"
PIXEL = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


@pytest.fixture
def page(page) -> Page:
    answer_with(page, whole("First"), whole("Second"))
    page.value("window.saved = []; save = (name, kind, text) => saved.push(text); 0")
    return page


def encoded(image: Image.Image, kind: str, **further: object) -> str:
    written = io.BytesIO()
    image.save(written, kind, **further)
    return base64.b64encode(written.getvalue()).decode()


def as_file(content: str, name: str, kind: str) -> str:
    """An expression for a file of the browser's with these bytes."""
    return f"new File([Uint8Array.from(atob('{content}'), (each) => each.charCodeAt(0))], '{name}', {{type: '{kind}'}})"


def opened_again(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2])))


def test_pictures_are_made_small_and_upright_without_what_the_camera_wrote(page):
    page.value(SEES)
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a camera"  # lies on its side
    photograph = as_file(encoded(Image.new("RGB", (3136, 1000), "red"), "JPEG", exif=exif), "p.jpg", "image/jpeg")
    drawing = as_file(encoded(Image.new("RGBA", (8, 4), (0, 0, 255, 0)), "PNG"), "d.png", "image/png")
    transfer = f"const given = new DataTransfer(); for (const file of [{photograph}, {drawing}]) given.items.add(file)"
    page.value(f"{{ {transfer}; $('text').dispatchEvent(new ClipboardEvent('paste', {{ clipboardData: given }})); }} 0")
    page.until("document.querySelectorAll('.chip img').length === 2")
    ask(page, "What is it?")
    content = sent(page)[0]["messages"][0]["content"]
    assert [part["type"] for part in content] == ["image_url", "image_url", "text"]
    first, second = (opened_again(part["image_url"]["url"]) for part in content[:2])
    assert (first.format, first.size, dict(first.getexif())) == ("JPEG", (500, 1568), {})
    assert (second.format, second.size, second.convert("RGBA").getpixel((0, 0))[3]) == ("PNG", (8, 4), 0)
    shown = "[...document.querySelectorAll('.message.user img')]"
    assert page.value(f"{shown}.map((each) => each.alt)") == ["p.jpg", "d.png"]
    page.until(f"{shown}.every((each) => each.naturalWidth)")


def test_a_picture_is_dropped_taken_away_and_enlarged_by_keyboard(page):
    page.value(SEES)
    assert page.value("$('attach').title") == "Attach pictures or text files"
    file = as_file(PIXEL.partition(",")[2], "dot.gif", "image/gif")
    drop = f"const dataTransfer = new DataTransfer(); dataTransfer.items.add({file})"
    for number in (1, 2):
        page.value(f"{{ {drop}; $('view-talk').dispatchEvent(new DragEvent('drop', {{ dataTransfer }})); }} 0")
        page.until(f"document.querySelectorAll('.chip').length === {number}")
    page.value("document.querySelector('[aria-label=\"Remove dot.gif\"]').focus()")
    page.press("Enter")
    assert len(texts(page, ".chip")) == 1
    page.value("$('text').focus()")
    page.press("Enter")  # a picture alone is a question, too
    page.until("answering.size === 0 && sent.length === 1")
    assert texts(page, "#title") == ["dot.gif"]
    page.value("document.querySelector('.picture').focus()")
    page.press("Enter")
    assert page.value("document.querySelector('.picture').getAttribute('aria-pressed')") == "true"


def test_a_model_that_sees_nothing_is_sent_no_picture_and_the_page_says_so(page):
    page.value(f"attach([{as_file(PIXEL.partition(',')[2], 'dot.gif', 'image/gif')}])")
    page.until("$('toast').textContent")
    assert texts(page, "#toast") == ["pocket can't see pictures. Choose a model that can, or ask without dot.gif."]
    page.value(f"attached = [{{ name: 'dot.gif', url: '{PIXEL}' }}]; 0")  # from before another model was chosen
    ask(page, "What is it?")
    assert sent(page) == []
    assert "this conversation contains some" in texts(page, ".complaint")[0]
    page.value(f"{SEES}; attach([new File(['no'], 'broken.png', {{type: 'image/png'}})])")
    assert texts(page, "#toast") == ["broken.png can't be read as a picture."]


def test_pictures_stay_over_reloads_edits_exports_and_imports(page):
    page.value(f"{SEES}; attached = [{{ name: 'a [dot].gif', url: '{PIXEL}' }}]; 0")
    ask(page, "What is it?")
    page.value("$('export-markdown').click(); $('export-json').click(); 0")
    markdown, exported = page.value("saved")
    assert f"## Question\n\n![a \\[dot\\].gif]({PIXEL})\n\nWhat is it?" in markdown
    page.reload()
    page.until("document.querySelectorAll('.message.user img').length === 1 && $('model').value === 'pocket'")
    answer_with(page, whole("Third"))
    page.value(f"{SEES}; edit(current.messages[0]); document.querySelector('.edited').value = 'And now?'; 0")
    page.press("Enter")
    page.until("answering.size === 0 && current.messages.length === 4")
    assert sent(page)[0]["messages"] == [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": PIXEL}}, {"type": "text", "text": "And now?"}]}]  # fmt: skip
    page.value(f"bringIn([new File([{json.dumps(exported)}], 'own.json')])")
    assert texts(page, "#toast") == ["1 conversation imported."]
    assert page.value("[...conversations.values()].at(-1).messages[0].pictures[0].url") == PIXEL


def test_of_openai_messages_pictures_that_are_there_are_taken_and_others_are_named(page):
    parts = [
        {"type": "image_url", "image_url": {"url": PIXEL}}, {"type": "input_image", "image_url": PIXEL},
        {"type": "image_url", "image_url": {"url": "https://nowhere.invalid/a.png"}}, {"type": "text", "text": "Ah?"},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,AAAA"}},
    ]  # fmt: skip
    page.value(f"bringIn([new File([{json.dumps(json.dumps([{'role': 'user', 'content': parts}]))}], 'theirs.json')])")
    assert texts(page, "#toast") == ["1 conversation imported. Left out: 2 pictures that this page can't show or keep."]
    page.value("show([...conversations.values()][0]); 0")
    assert page.value("[...document.querySelectorAll('.message img')].map((each) => each.src)") == [PIXEL] * 2


def test_the_bundled_model_is_asked_about_a_picture(chromium):
    with running_model("pocket-sight", max_model_len=512, num_threads=1) as model, served(*model) as server:
        card, _ = httpx.get(f"{server.address}/v1/models").json()["data"]
        assert "image" in card["architecture"]["input_modalities"]
        page = chromium.open(server.address + "/")
        page.until("card()?.is_loaded && $('attach').title.includes('pictures')")
        picture = as_file(encoded(Image.new("RGB", (64, 64), "red"), "PNG"), "red.png", "image/png")
        ask(page, "What is it?")
        page.click("#new")
        page.value(f"attach([{picture}])")
        ask(page, "What is it?")
        unseen, seen = page.value("[...conversations.values()].map((each) => each.messages.at(-1))")
        assert seen["content"] and seen["usage"]["prompt_tokens"] > unseen["usage"]["prompt_tokens"] + 2, seen
        assert_nothing_from_elsewhere(page, server.address)
        page.close()


# --- videos: frames are taken -----------------------------------------------------------------------------------------

# A frame that takes a blink on an idle machine takes a second and more among others' work, and here is waited for.
PATIENT = """window.setTimeout = ((later) => (act, wait) =>
    later(act, wait === 1000 * MOST_SEEKING_SECONDS ? 1e9 : wait))(setTimeout)"""
SEES_VIDEOS = f"{PATIENT}; {SEES}".replace("'image'", "'image', 'video'")
COLOURS = ("red", "lime", "blue")


def coloured(size: tuple[int, int] = (800, 400), seconds: int = 1) -> str:
    frames = [Image.new("RGB", size, colour) for colour in COLOURS for _ in range(10 * seconds)]
    content = film(frames, codec="libvpx", container="webm")
    return as_file(base64.b64encode(content).decode(), "a.webm", "video/webm")


def colour_of(url: str) -> tuple[str, tuple[int, int]]:
    image = opened_again(url)
    means = ImageStat.Stat(image.convert("RGB")).mean
    return COLOURS[means.index(max(means))], image.size


def test_a_video_is_sent_as_its_frames_and_played_in_the_conversation(page):
    page.value(SEES_VIDEOS)
    assert page.value("$('attach').title") == "Attach pictures, videos, or text files"
    transfer = f"const dataTransfer = new DataTransfer(); dataTransfer.items.add({coloured()})"
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
    page.value(f"{SEES_VIDEOS}; window.MOST = MOST_FRAME_CHARACTERS; 0")
    page.value(f"void attach([{coloured((320, 240), seconds=8)}])")
    page.until("attached.length || $('toast').textContent", 600)
    assert page.value("attached.length") == 1, texts(page, "#toast")
    frames = page.value("attached[0].frames")
    assert len(frames) == 32 and sum(map(len, frames)) <= page.value("MOST")
    assert [colour for colour, _ in map(colour_of, (frames[0], frames[15], frames[31]))] == list(COLOURS)


def test_videos_stay_over_reloads_exports_and_imports(page):
    page.value(f"{SEES_VIDEOS}; attach([{coloured((64, 32))}])")
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
    page.value(f"{SEES_VIDEOS}; attach([new File(['no'], 'broken.mp4', {{type: 'video/mp4'}})])")
    page.until("$('toast').textContent")
    assert texts(page, "#toast")[0].startswith("This browser can't play broken.mp4.")
    page.value("cards[0].architecture.input_modalities.pop(); attach([new File([''], 'a.mp4', {type: 'video/mp4'})])")
    page.until("$('toast').textContent.includes('see videos')")
    page.value("attached = [{ name: 'a', url: 'data:,', frames: ['data:,'], rate: 1 }]; 0")
    ask(page, "What is it?")
    assert sent(page) == [] and "can't see videos, and this conversation contains some" in texts(page, ".complaint")[0]
