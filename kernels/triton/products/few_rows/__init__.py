"""Products of few rows, with the norm before them and the sum or the gate after them in the same launch."""
