"""What goes over the wire, a struct for each body: validation and the OpenAPI document are both made from these."""
