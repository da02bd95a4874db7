"""A model that answers with a given text at the true cost of its shape, and texts for it to answer with.

What speculation gains depends on the text, and a model of random weights writes none. Here each prompt begins with its
answer in an alphabet of its own, the script, and one layer of the model looks a fixed distance back and says what it
finds there; every other weight is random and costs what it costs. Proposers see ordinary tokens: the script's ids
never occur in a text, so a draft can't be looked up in it. `checkpoint.py` makes the model, `texts.py` the texts,
`sources.py` finds what they are made of, `scripts.py` joins prompt and answer.
"""
