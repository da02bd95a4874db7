"""The characters that byte-level tokenizers use for bytes: printable ones stand for themselves, others start at
U+0100."""


def _characters() -> list[str]:
    plain = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    moved = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(moved)) for byte in range(256)]


CHARACTER_OF_BYTE = _characters()
BYTE_OF_CHARACTER = {character: byte for byte, character in enumerate(CHARACTER_OF_BYTE)}
