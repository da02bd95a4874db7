"""Decodes a medium into the pixels that its model needs."""

from PIL import Image

from ....protocol.errors import RequestError
from ..families.family import Family
from ..families.frames import Frames
from ..sources.encoded_media import EncodedMedium
from .images import read_image


def decoded_frames(family: Family, medium: EncodedMedium) -> Frames:
    """Decode a medium; raises `RequestError` for a file that can't be read or is too large."""
    if medium.kind == "video":
        from .videos import open_video  # imports the film decoder

        return family.video(open_video(medium), medium.options)
    return family.image(_image(medium), medium.options)


def _image(medium: EncodedMedium) -> Image.Image:
    if medium.form == "files":
        raise RequestError("An image is one file.")
    if medium.form == "file":
        return read_image(medium.data)
    frames, height, width = medium.shape
    if frames != 1 or len(medium.data) != height * width * 3:
        raise RequestError("These pixels are not those of one picture in RGB.")
    return Image.frombytes("RGB", (width, height), medium.data)
