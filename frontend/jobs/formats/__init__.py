"""The formats of a job's files, by their names: compressed lines, and Parquet.

Begin with `formats.py`.
"""
