"""Whole numbers in English words, as num2words writes them: one thousand, one hundred and sixty-four."""

_SMALL = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")


def in_words(number: int) -> str:
    """From 0 to 999,999."""
    if number < len(_SMALL):
        return _SMALL[number]
    if number < 100:
        return _TENS[number // 10 - 2] + (f"-{_SMALL[number % 10]}" if number % 10 else "")
    unit, name = (100, "hundred") if number < 1000 else (1000, "thousand")
    whole, rest = f"{in_words(number // unit)} {name}", number % unit
    if not rest:
        return whole
    return f"{whole} and {in_words(rest)}" if rest < 100 else f"{whole}, {in_words(rest)}"
