"""How others answer a file of lines: programs that their own Python runs, with IN, OUT and MODEL as arguments."""
