"""The doors by which engines that run many machines reach Penstock: each file is for one of them, and needs its extra.

Nothing else imports this room, so nobody pays for what they don't use.
"""
