"""The bodies of requests and replies, as structs from which validation and the OpenAPI document are made.

Begin with `chat.py`; `sampling.py` has what all generating endpoints take, made of the fields of `SamplingParams`.
"""
