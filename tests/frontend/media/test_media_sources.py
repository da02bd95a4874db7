"""What callers give as pictures and videos: many forms of one thing, opened in the caller's own process alone."""

import base64
import io
import os
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec
import numpy
import pytest
from builders.cases import for_each
from builders.tiny_sight import file_of, noise
from PIL import Image

from penstock.frontend.media import rgb
from penstock.frontend.media.decoding.images import opened, read_image
from penstock.frontend.media.sources import download
from penstock.frontend.media.sources.download import downloaded
from penstock.frontend.media.sources.encoded_media import EncodedMedium, packed_media, unpacked_media
from penstock.frontend.media.sources.parts import media_of_prompt, take_media
from penstock.frontend.media.sources.source import MOST_BYTES, check_source, encoded
from penstock.protocol.attach import LONGEST_FRAME
from penstock.protocol.errors import LimitError, RequestError

PICTURE = noise(20, 30)
LEVELS = numpy.asarray(PICTURE)


FILE = file_of(PICTURE)
URL = "data:image/png;base64," + base64.b64encode(FILE).decode()


PIXELS = [
    PICTURE, LEVELS, LEVELS[None], numpy.moveaxis(LEVELS, 2, 0), LEVELS / 255, LEVELS.astype(numpy.int64),
    numpy.dstack([LEVELS, numpy.full((20, 30), 255, numpy.uint8)]),
]  # fmt: skip


def test_files_and_pixels_are_taken_in_every_form_that_holds_them():
    for source in (FILE, bytearray(FILE), memoryview(FILE), URL, {"url": URL}, io.BytesIO(FILE)):
        medium = encoded("image", source, may_open=False)
        assert (medium.form, medium.data) == ("file", FILE), source
    for source in PIXELS:
        medium = encoded("image", source, may_open=False)
        assert (medium.form, medium.shape, medium.data) == ("pixels", (1, 20, 30), LEVELS.tobytes()), source


@for_each("source, says", [
    (LEVELS * 1.0, "fractions"), (LEVELS * numpy.float32("nan"), "fractions"), (LEVELS.astype(int) - 1000, "0 to 255"),
    (numpy.zeros((20, 30, 7), numpy.uint8), "1, 3 or 4 channels"),
    (numpy.zeros((0, 30, 3), numpy.uint8), "no pixels"), (numpy.zeros(5, numpy.uint8), r"\[height, width, 3\]"),
    (LEVELS > 3, "holds bool"), ([PICTURE, PICTURE], "one picture"), (b"", "empty"), (7, "is int"),
    ({"nothing": 1}, "needs 'image' or 'url'"), ("data:image/png,abc", "base64"),
    ("data:image/png;base64,####", "not valid"), ("data:text/html;base64,QQ==", "is no image"),
    ("data:" + "x" * 500, "no comma"), (io.StringIO("text"), "binary mode"),
])  # fmt: skip
def test_what_is_no_picture_is_refused(source, says):
    with pytest.raises(RequestError, match=says):
        encoded("image", source, may_open=True)
    if not hasattr(source, "shape") and not hasattr(source, "read"):  # of these it takes reading to tell
        with pytest.raises(RequestError, match=says):
            check_source("image", source, {})


def test_a_picture_in_any_form_may_have_so_many_pixels(monkeypatch):
    rgb.check_size(1, rgb.MOST_PIXELS)
    with pytest.raises(LimitError, match="96 million pixels, and this one has 100,663,297 x 1. Make it smaller"):
        rgb.check_size(rgb.MOST_PIXELS + 1, 1)
    monkeypatch.setattr(rgb, "MOST_PIXELS", LEVELS[..., 0].size - 1)
    sources = [(kind, source) for source in PIXELS for kind in ("image", "video")] + [("video", [PICTURE])]
    reads = [lambda: opened(FILE), lambda: rgb.as_rgb(PICTURE)]  # before and while it is decoded
    for read in reads + [lambda given=given: encoded(*given, may_open=False) for given in sources]:
        with pytest.raises(LimitError, match="this one has 30 x 20"):
            read()


def test_a_source_is_checked_without_reading_it(tmp_path):
    (tmp_path / "a.png").write_bytes(FILE)
    good = (tmp_path / "a.png", (tmp_path / "a.png").as_uri(), "https://nowhere.invalid/a.png", URL, FILE, PICTURE)
    stream = io.BytesIO(FILE)
    for source in (*good, stream, {"url": URL}):
        check_source("image", source, {"max_pixels": 9})
        check_source("video", [source, source], {})
    assert stream.tell() == 0
    for source, says in (("nothing.png", "No such file"), (tmp_path, "a folder"), ("ftp://x/y.png", "an address of"),
                         ("file://elsewhere/a.png", "of this machine"), ({"url": 5}, "is int")):  # fmt: skip
        for kind, given in (("image", source), ("video", [source])):
            with pytest.raises(RequestError, match=says):
                check_source(kind, given, {})


def test_files_and_urls_are_opened_by_the_callers_own_process_alone_up_to_a_length(tmp_path, monkeypatch):
    path = tmp_path / "a picture.png"
    path.write_bytes(FILE)
    for source in (path, str(path), path.as_uri()):
        assert encoded("image", source, may_open=True).data == FILE
    for source in (path, str(path), path.as_uri(), "https://example.org/a.png"):
        with pytest.raises(RequestError, match="Send it as data: URL"):
            encoded("image", source, may_open=False)
    monkeypatch.setitem(MOST_BYTES, "video", 2 * len(FILE))
    assert encoded("video", [FILE, FILE], may_open=False).form == "files"
    with pytest.raises(LimitError, match="A video may have"):  # of all frames together
        encoded("video", [FILE] * 3, may_open=False)
    monkeypatch.setitem(MOST_BYTES, "image", 1 << 10)
    with open(tmp_path / "long.png", "wb") as file:
        file.truncate(1 << 40)
    for source in (FILE, URL, io.BytesIO(FILE), path, tmp_path / "long.png"):
        with pytest.raises(LimitError, match="this one has more"):
            encoded("image", source, may_open=True)


def test_a_conversation_gives_its_media_in_order_and_keeps_a_place_for_each():
    parts = [
        {"type": "image_url", "image_url": {"url": URL, "detail": "low"}},
        {"type": "text", "text": "and"},
        {"type": "video", "video": [PICTURE] * 3, "fps": 1.0},
        {"type": "input_image", "image_url": URL},
        {"type": "image", "image": PICTURE, "min_pixels": 50, "max_pixels": 100},
    ]
    messages = [{"role": "system", "content": "text"}, {"role": "user", "content": parts}]
    found, media = take_media(messages, may_open=False)
    assert found[0] is messages[0] and messages[1]["content"][0]["type"] == "image_url"
    assert [part["type"] for part in found[1]["content"]] == ["image", "text", "video", "image", "image"]
    assert [(medium.kind, medium.form) for medium in media] == [
        ("image", "file"), ("video", "pixels"), ("image", "file"), ("image", "pixels")
    ]  # fmt: skip
    assert [medium.options for medium in media] == [
        {"max_pixels": 512 * 512}, {"fps": 1.0}, {}, {"min_pixels": 50, "max_pixels": 100}
    ]  # fmt: skip


def test_fast_deploys_multimodal_data_is_taken():
    media = media_of_prompt({"image": [PICTURE, FILE], "video": [{"video": b"film", "max_frames": 30}]}, may_open=False)
    assert [(each.kind, each.form) for each in media] == [("image", "pixels"), ("image", "file"), ("video", "file")]
    assert media[2].options == {"max_frames": 30} and media[2].data == b"film"
    assert len(media_of_prompt({"video": [PICTURE] * 4}, may_open=False)) == 1
    with pytest.raises(RequestError, match="'audio' is nothing"):
        media_of_prompt({"audio": b""}, may_open=False)


@for_each(
    "options, says",
    [({"max_frames": -1}, "above 0"), ({"fps": True}, "frames a second"), ({"max_pixel": 3}, "Did you mean max_pixels"),
     ({"fps": float("nan")}, "frames a second"), ({"sample_fps": 1e-6}, "from 0.001"),
     ({"min_pixels": 1.5}, "whole number"), ({"detail": "most"}, "or 'high'")],
)  # fmt: skip
def test_an_option_that_cant_be_is_refused(options, says):
    with pytest.raises(RequestError, match=says):
        encoded("video", {"video": b"film", **options}, may_open=False)


def test_what_a_client_sends_in_another_form_is_refused():
    whole = {"kind": "image", "form": "file", "data": FILE}
    changes = [
        {"kind": "audio"}, {"form": "path", "data": b"/etc/passwd"}, {"shape": (1, 2)},
        {"options": {"max_pixels": float("nan")}}, {"options": {"loader": 1.0}}, {"options": {"max_frames": 2.0**40}},
    ]  # fmt: skip
    packed = [msgspec.msgpack.encode([EncodedMedium(**{**whole, **changed})]) for changed in changes]
    for content in (b"", b"\xc1", b"\xdd\xff\xff\xff\xff", *packed):
        with pytest.raises(RequestError):
            unpacked_media(content)


class Server(BaseHTTPRequestHandler):
    def do_GET(self):
        places = {"/loop": "/loop", "/file": "file:///etc/passwd", "/once": "/picture"}
        if self.path.startswith("/inside?"):
            places[self.path] = f"http://{self.path.partition('?')[2]}/picture"
        if (place := places.get(self.path)) is not None:
            self.send_response(302)
            self.send_header("Location", place)
            self.end_headers()
            return
        if self.path in ("/slow-headers", "/slow-body"):
            self.send_response(200)
            if self.path == "/slow-body":
                self.end_headers()
            with suppress(OSError):
                while True:
                    self.wfile.write(b"a")
                    time.sleep(0.05)
        self.send_response(200 if self.path in ("/picture", "/endless") else 404)
        self.end_headers()
        self.wfile.write(FILE * (200 if self.path == "/endless" else 1))

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("0.0.0.0", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_url_is_downloaded_by_the_caller_within_limits(address):
    for path in ("/picture", "/once"):
        assert encoded("image", address + path, may_open=True).data == FILE
    for path, says in (
        ("/loop", "answers 302|redirect"), ("/file", "can't be downloaded"), ("/no", "404"), ("/endless", "more than")
    ):  # fmt: skip
        with pytest.raises(RequestError, match=says):
            downloaded("image", address + path, 100 << 10)
    for path in ("/slow-headers", "/slow-body"):
        with pytest.raises(LimitError, match="more than 0.5 s"):
            downloaded("image", address + path, 100 << 10, most_seconds=0.5)


def test_a_server_on_the_internet_redirects_nobody_into_the_network_of_this_machine(address, monkeypatch):
    port = address.rpartition(":")[2]
    outside = ["127.0.0.1"]  # stands for the internet
    monkeypatch.setattr(download, "_is_outside", lambda peer: peer in outside)
    assert downloaded("image", f"{address}/inside?127.0.0.1:{port}", 100 << 10) == FILE
    with pytest.raises(RequestError, match="into the network of this machine"):
        downloaded("image", f"{address}/inside?127.0.0.2:{port}", 100 << 10)
    outside.clear()
    assert downloaded("image", f"{address}/inside?127.0.0.2:{port}", 100 << 10) == FILE


@for_each("shape", [(1500, 1000, 3), (3, 900, 600, 3)])
def test_many_pixels_are_compressed_without_loss_on_their_way(shape):
    kind = "image" if len(shape) == 3 else "video"
    pixels = (numpy.arange(numpy.prod(shape)) // 7 % 251).astype(numpy.uint8).reshape(shape)
    given = encoded(kind, pixels, {"max_pixels": 50}, may_open=False)
    packed = packed_media([given])
    assert len(packed) < len(given.data) // 2
    [medium] = unpacked_media(packed)
    assert medium.options == {"max_pixels": 50} and medium.form == ("file" if kind == "image" else "files")
    files = [medium.data] if kind == "image" else msgspec.msgpack.decode(medium.data, type=list[bytes])
    read = numpy.stack([numpy.asarray(read_image(file)) for file in files])
    assert numpy.array_equal(read, pixels.reshape(-1, *shape[-3:]))


def test_a_photograph_of_twelve_million_pixels_fits_into_a_message_to_the_daemon_and_a_small_one_goes_as_it_is():
    """An eighth of one, with light that changes slowly, and a sensor's noise of some levels."""
    random = numpy.random.default_rng(1)
    light = Image.fromarray(random.integers(0, 255, (50, 75, 3), numpy.uint8)).resize((1500, 1000), Image.BICUBIC)
    grain = random.integers(-6, 7, (1000, 1500, 3), numpy.int16)
    photograph = Image.fromarray((numpy.asarray(light) + grain).clip(0, 255).astype(numpy.uint8))
    given = encoded("image", photograph, may_open=False)
    assert 8 * len(packed_media([given])) < LONGEST_FRAME < 8 * len(given.data)
    given = encoded("image", Image.new("RGB", (64, 64)), may_open=False)
    assert unpacked_media(packed_media([given])) == [given]


@for_each("kind", ["image", "video"])
@for_each("what", ["a pipe", "a device", "a socket", "a folder"])
def test_what_is_no_regular_file_is_refused_without_waiting_for_it(tmp_path, kind, what):
    path = tmp_path / "odd"
    with socket.socket(socket.AF_UNIX) as server:
        if what == "a pipe":
            os.mkfifo(path)
        elif what == "a device":
            path.symlink_to("/dev/zero")
        elif what == "a socket":
            server.bind(str(path))
        else:
            path.mkdir()
        for source in (path, path.as_uri(), {"url": str(path)}, {"path": path}):
            with pytest.raises(RequestError, match=f"The {kind} .*odd.* can't be read: it is {what}"):
                encoded(kind, source, may_open=True)
        path.rmdir() if path.is_dir() else path.unlink()
