"""A model's tokenizer without its model: text to ids, ids to text, conversations to prompts."""

from penstock import Tokenizer

tokenizer = Tokenizer.from_pretrained("pocket")
token_ids = tokenizer.encode("The sky is blue. 天空是蓝色的。")
print(len(token_ids), "tokens of", tokenizer.vocab_size)
print(tokenizer.decode(token_ids))

messages = [{"role": "user", "content": "Hello"}]
print(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
