"""Readers of the inside of a tool call, one for each way in which models write it.

`json_call.py` is the usual one; `../families.py` says which family writes which. A call that may be written in several
ways has a `FormatChoice` of its readers.
"""
