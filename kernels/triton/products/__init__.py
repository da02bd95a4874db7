"""Products of rows with weights in every number format, and what stands around them."""
