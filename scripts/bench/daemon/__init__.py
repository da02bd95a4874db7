"""A model shared through the daemon."""
