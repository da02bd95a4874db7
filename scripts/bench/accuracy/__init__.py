"""What formats, files and schemas keep."""
