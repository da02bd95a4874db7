"""Pictures and videos: encoders, and the rows that they make from media.

Begin with `rows.py`, which applies a plan's media, then `encoder.py`.
"""
