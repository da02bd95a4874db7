"""Decodes files of strangers, in a helper process alone: pictures by Pillow, videos by PyAV, animations by Pillow.

What a file says of its size is checked before anything is decoded; the kernel bounds what the rest may use. No sentence
holds a path or a line of a library's own.
"""
