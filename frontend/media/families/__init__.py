"""Each model family's requirements for media, one file each: sizes, sampled frames, placeholders and positions.

A family is a struct of a checkpoint's settings. It is sent to the helper processes, which resize with it (`image`,
`video`), and used in the front end for the tokens and positions of a medium.
"""
