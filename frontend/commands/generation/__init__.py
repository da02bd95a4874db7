"""The parts of `penstock generate`: reads prompts, runs them, and writes the answers so that none is lost.

Begin with `job.py`; `prompts.py` reads the prompts, `output.py` writes the answers.
"""
