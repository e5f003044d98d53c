"""Everything that ckaudit raises on purpose.

CkauditError
├── UnreadableError   an argument that cannot be audited at all: not there, not ours, nothing in it
└── UsageError        a request that makes no sense: an unknown name, a step that is not a number
"""


class CkauditError(Exception):
    """Base of all errors with a message meant for the user.

    Attributes:
        hint: One sentence that says what to do about it, or an empty string.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UnreadableError(CkauditError):
    """The thing named by the user cannot be audited at all."""


class UsageError(CkauditError):
    """The request itself is wrong."""
