"""The keys of config.json: other formats' names for them, and the treatment of keys that nothing reads.

Begin with `unread_keys.py`.
"""
