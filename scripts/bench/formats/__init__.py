"""Files of models in the formats that other engines read."""
