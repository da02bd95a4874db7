"""The parts of `penstock generate`: runs prompts, and writes the answers so that none is lost.

Begin with `job.py`; `frontend/rows` reads the prompts, `output.py` writes the answers.
"""
