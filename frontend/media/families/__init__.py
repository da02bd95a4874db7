"""What each family of models wants to see, one file each: sizes, sampled frames, placeholders and positions.

A family is a struct of the figures in a checkpoint's files. It travels to the helper processes, which resize with it
(`image`, `video`), and stays in the front end, which asks it for the tokens and positions of a medium.
"""
