"""Readers of the inside of a tool call, one for each format that models use.

`json_call.py` is the usual one; `../families.py` has each family's formats. A call with several possible formats has a
`FormatChoice` of readers.
"""
