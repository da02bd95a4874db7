"""What callers give as a picture or video, made an `EncodedMedium`: read, downloaded, and not decoded yet.

`parts.py` takes media out of conversations and prompts, `source.py` reads each of them. All is light to import.
"""
