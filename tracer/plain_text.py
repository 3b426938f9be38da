r"""Makes foreign texts safe to print: names in captures, names of files, words of commands.

Texts from a capture, a folder or a peer may contain control characters that a terminal obeys, characters that reorder
the text around them, or bytes that are no text. Each such character is written as an escape of its bytes, `\x1b`;
everything else is unchanged. Messages, whose ids must stay exact, have their own rule (`collector.trace.wire_text`),
based on this one.
"""

import unicodedata

UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (direction marks, zero width), surrogate, private, unassigned; separators of lines and paragraphs."""


def plain(text: str) -> str:
    """`text` on one line, with unsafe characters as escapes; bytes that were no UTF-8 (PEP 383) likewise."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(character if is_safe(character) else escape(character) for character in text)


def is_safe(character: str) -> bool:
    """Whether a terminal shows the character as it is, where it stands."""
    return " " <= character <= "~" or (
        character > "~" and unicodedata.category(character) not in UNSAFE_CATEGORIES and character.isprintable()
    )


def escape(character: str) -> str:
    r"""The bytes of a character as `\xNN` each."""
    encoded = character.encode("utf-8", "surrogateescape" if "\udc80" <= character <= "\udcff" else "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in encoded)
