"""Random texts of what tokenizers treat in ways of their own: spaces, code, scripts, marks, control characters."""

from random import Random

WORDS = (
    *("The", "the", "answer", "here", "return", "def", "class", "value", "hello", "café", "naïve", "你好", "世界"),
    *("こんにちは", "안녕", "Ünï", "ﬁne", "①②", "㍿", "ａｂｃ"),
)
_BETWEEN = [" ", " ", " ", "  ", "\n", "\n    ", ". ", ", ", "\t", ""]
_MARKS = (
    *("\0", "\x01", "\t", "\r\n", "\u3000", "\u00a0", "\u200b", "\ufeff", "\u2028", " ", "▁", "\ufffd"),
    *("🙂", "👨‍👩‍👧", "ﬁ", "ａ", "é", "e\u0301", "\u1112\u1161\u11ab", "한", "½", "か\u3099", "İ", "ſ"),
    *("I'm", "we'LL", "1234567", "<uds>", "<uds", "<0x41>", "x", "he", "漢字"),
)
_RANGES = ((0x01, 0x250), (0x300, 0x3000), (0x3000, 0xD7FF), (0xE000, 0x20000))


def random_text(draw: Random) -> str:
    kind = draw.random()
    if kind < 0.5:
        return "".join(draw.choice((*WORDS, "<uds>")) + draw.choice(_BETWEEN) for _ in range(draw.randint(0, 12)))
    if kind < 0.65:
        return "".join(draw.choices("ab ▁e\u0301tTh", k=draw.randint(0, 20)))
    if kind < 0.9:
        return "".join(draw.choices(_MARKS, k=draw.randint(0, 15)))
    return "".join(chr(draw.randrange(*draw.choice(_RANGES))) for _ in range(draw.randint(0, 10)))
