"""The operations in plain torch: the definition that every faster version is held against."""
