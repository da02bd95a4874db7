"""Models that give numbers instead of text: the calls for them, their part of the door, and their requests."""
