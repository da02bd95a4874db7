"""The bodies of requests and replies, as structs from which validation and the OpenAPI document are made.

Begin with `chat.py`; `sampling.py` has the fields of all generating endpoints, made from those of `SamplingParams`.
"""
