"""Jobs: files of requests that are answered through any interruption, by `penstock batch` and `LLM.batch`.

Begin with `job.py`; `journal.py` keeps what was done on the disk, `head.py` what the answers depend on.
"""
