"""How a text becomes numbers."""

from typing import Protocol


class Tokens(Protocol):
    """Cuts texts into tokens."""

    count: int
    """Tokens known."""
    line_break: int
    """The token between two lines."""

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ...


class Characters:
    """A token for each printable ASCII character, and one for a line break."""

    count = 96
    line_break = 0

    def encode(self, text: str) -> list[int]:
        """Return one token for each character.

        >>> Characters().encode(" a~")
        [1, 66, 95]
        """
        return [ord(character) - 31 for character in text]
