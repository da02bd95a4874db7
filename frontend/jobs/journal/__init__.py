"""A job's journal: its frames, the records in them, and the answers and receipts that these add up to."""
