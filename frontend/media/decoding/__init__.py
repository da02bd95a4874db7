"""Decodes strangers' files, only in helper processes: pictures by Pillow, videos by PyAV, animations by Pillow.

The size that a file states is checked before anything is decoded; the kernel bounds the memory and time of the rest.
Error messages contain no paths and none of the libraries' own texts.
"""
