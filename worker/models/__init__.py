"""Models: a config read into a description, and one decoder that runs every description.

Begin with `decoder.py`; `load.py` loads a folder. The modules that read configs import no torch.
"""
