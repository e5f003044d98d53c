"""Everything that ckaudit raises on purpose.

CkauditError
├── UnreadableError     an argument that cannot be audited at all: not there, not ours, nothing in it
├── UsageError          a request that makes no sense: an unknown name, a step that is not a number
└── UnhealthyRunError   a training that was watched is as ill as its loop asked to be told
"""

from collections.abc import Sequence
from typing import Any


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


class UnhealthyRunError(CkauditError):
    """A training that was watched is ill; raised only where that was asked for.

    Attributes:
        findings: What was found, each a `Finding` as in ck.report.v1.
    """

    def __init__(self, message: str, *, findings: Sequence[Any] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.findings = findings
