"""Why a file of a checkpoint cannot be judged further: raised where it is noticed, told as a finding or as a skip."""

from ckaudit.contract.violations import Kind


class Trouble(Exception):  # noqa: N818  never seen by a user: it carries the finding that will be
    """Something is wrong with the file.

    Attributes:
        kind: What is wrong.
        message: How it is said, after the name of the file.
    """

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


class Unjudged(Exception):  # noqa: N818  never seen by a user: it carries the reason of a skip
    """Nothing is known to be wrong, and nothing can be said: the message tells why."""
