"""Reads or downloads callers' pictures and videos into `EncodedMedium`s, without decoding them.

`parts.py` takes media out of conversations and prompts, `source.py` reads each of them. All of this is light to import.
"""
