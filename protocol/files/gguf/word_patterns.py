"""Patterns by which published tokenizers split text into words, in the syntax of the `tokenizers` library.

A GGUF file has only names for them.

Ranges of characters are given by code point if they contain look-alikes.
"""

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def characters(ranges: str) -> str:
    """A class of the characters with these code points: `41-5A B5`."""
    return "[" + "".join(["-".join([rf"\x{{{end}}}" for end in each.split("-")]) for each in ranges.split()]) + "]+"


def _as_llama(digits: str) -> str:
    return rf"{_CONTRACTIONS}|{_BEFORE}\p{{L}}+|{digits}|{_SIGNS}|{_SPACES}"


def _by_case(digits: str, ending: str) -> str:
    """Words end where an uppercase letter follows a lowercase one."""
    return (
        rf"{_BEFORE}{_UPPER}*{_LOWER}+{ending}|{_BEFORE}{_UPPER}+{_LOWER}*{ending}|{digits}|"
        rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
    )


GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA_3 = _as_llama(r"\p{N}{1,3}")
QWEN_2 = _as_llama(r"\p{N}")
QWEN_3_5 = rf"{_CONTRACTIONS}|{_BEFORE}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
GPT_4O = _by_case(r"\p{N}{1,3}", f"{_CONTRACTIONS}?")
TEKKEN = _by_case(r"\p{N}", "")
LING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
SEED_CODER = rf"{_CONTRACTIONS}|{_BEFORE}\p{{L}}+|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
UFAKZEKA = rf"{_BEFORE}\p{{L}}+|\p{{N}}|{_SIGNS}|{_SPACES}"
EXAONE_MOE = (
    rf"{_CONTRACTIONS}|{_BEFORE}(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]?|"
    r"\s*[\r\n]|\s+(?!\S)|\s+"
)
JAIS_2 = (
    rf"{_CONTRACTIONS}|{_BEFORE}\p{{L}}+|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|"
    + "|".join(rf"\s{{{count}}}(?!\S)" for count in ("512", "256", "128", "64", "32", "16", "8", "4", "1,2"))
    + r"|\s{1}"
)
MINICPM_5 = _as_llama(r"\p{N}+")
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
LINES = r"[^\n]+|[\n]+"
THREES_FROM_THE_RIGHT = r"\d{1,3}(?=(?:\d{3})*\b)"
BEFORE_THREES = r"(?=(\d{3})+(?!\d))"

_ASCII_SIGN = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
HAN_AND_KANA = characters("4E00-9FA5 3040-309F 30A0-30FF")
DEEPSEEK_3 = (
    rf"{_ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
)
SPARK = (
    rf"{_ASCII_SIGN}[A-Za-z]+|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+|[\r\n]|"
    r"\s+(?!\S)|\s+"
)
DEEPSEEK_LETTERS = r"\s?" + characters(
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 388-38A 38C 38E-3A1 "
    "3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA 1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A "
    "1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 "
    "1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC 1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 "
    "212A-212D 212F-2134 2139 213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D "
    "A680-A69B A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F 104B0-104D3 "
    "104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943"
)
DEEPSEEK_SIGNS = r"\s?" + characters("21-2F 3A-7E FF01-FF0F FF1A-FF5E 2018-201F 3000-3002")
DEEPSEEK_HAN = characters("4E00-9FA5 800-4E00 AC00-D7FF")
ASIAN_SCRIPTS = characters(
    "4E00-9FFF 3400-4DBF F900-FAFF 3040-309F 30A0-30FF FF65-FF9F 2F00-2FDF E40-E7F E80-EFF 1780-17FF 1000-109F "
    "AA60-AA7F A9E0-A9FF AC00-D7AF 1100-11FF"
)
YOUTU_SCRIPTS = "|".join(
    (
        characters("AC00-D7A3 3131-318E"),
        characters("FF01 2026 201C 201D 2018 2019 2014 FF1A FF1B FF0C 3001-303F FE30-FE4F"),
        characters("3105-312F"),
        HAN_AND_KANA,
    )
)
YOUTU = _by_case(r"\p{N}", f"{_CONTRACTIONS}?")
