"""The bodies of requests and replies, as structs from which validation and the OpenAPI document are made."""
