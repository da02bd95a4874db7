"""What `penstock generate` does: reads prompts, asks them, and writes each answer so that none is lost.

Begin with `job.py`; `prompts.py` reads what is asked, `output.py` writes what came back.
"""
