"""Models: a config read into a description, and one decoder that runs every description.

`load_model` is imported from `.load`; the config modules import no torch.
"""
