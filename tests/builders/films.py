"""Pictures as a film that PyAV, which is imported here only in a call, encodes."""

import io
from collections.abc import Iterable

from PIL import Image


def film(frames: Iterable[Image.Image], rate: int = 10, codec: str = "mpeg4", container: str = "mp4") -> bytes:
    import av

    first, *others = frames
    content = io.BytesIO()
    with av.open(content, "w", format=container) as made:
        stream = made.add_stream(codec, rate=rate)
        stream.width, stream.height, stream.pix_fmt = *first.size, "yuv420p"
        for frame in (first, *others):
            made.mux(stream.encode(av.VideoFrame.from_image(frame)))
        made.mux(stream.encode())
    return content.getvalue()
