"""Receipts: strings from which anybody who has the model can check that it gave an answer, in text or in numbers."""
