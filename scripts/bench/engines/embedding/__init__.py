"""How other engines and Penstock are asked for the vectors of texts."""
