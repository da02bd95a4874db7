"""Pictures and videos: encoders, and the rows that they have made of media.

Begin with `rows.py`, which does what a plan says of media, then `encoder.py`.
"""
