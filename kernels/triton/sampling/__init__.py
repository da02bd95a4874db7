"""From logits to tokens without the host: masks, penalties, truncation, random draws."""
