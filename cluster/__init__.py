"""The doors by which engines that run many machines reach Penstock: each file is for one of them, and needs its extra.

`penstock batch --ray` imports its file when it runs, and nothing else does, so nobody pays for what they don't use.
"""
