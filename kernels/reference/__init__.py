"""The operations as formulas in plain torch, which every version is held against."""
