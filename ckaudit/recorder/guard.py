"""Keeps failures of the recorder away from the training: each kind is logged once, all are counted, lost files separately."""

import logging
from types import TracebackType

logger = logging.getLogger("ckaudit.recorder")


class Guard:
    """Runs pieces of the recorder's work and swallows their exceptions.

    Attributes:
        look_failures: Number of failed measurements, which are missing from the record.
        write_failures: Number of failures that cost a file, a checkpoint or a line.
        first_look_failure: Description of the first failed measurement; None: there was none.
        first_write_failure: Description of the first failed write; None: there was none.
    """

    def __init__(self) -> None:
        self.look_failures = self.write_failures = 0
        self.first_look_failure: str | None = None
        self.first_write_failure: str | None = None
        self._reported: set[tuple[str, type[BaseException]]] = set()

    @property
    def failures(self) -> int:
        """The number of all failures."""
        return self.look_failures + self.write_failures

    def __call__(self, what: str, *, writes: bool = False) -> "GuardedBlock":
        """Guard the body of a `with`: an interrupt passes through, any other exception is counted and swallowed.

        Args:
            what: What the body does, as a phrase that "failed" can follow.
            writes: Whether a failure costs a file, a checkpoint or a line.
        """
        return GuardedBlock(self, what, writes=writes)

    def failed(self, what: str, error: Exception, *, writes: bool = False) -> None:
        """Count a failure, and log the first of its kind."""
        if writes:
            self.write_failures += 1
            self.first_write_failure = self.first_write_failure or _in_words(what, error)
        else:
            self.look_failures += 1
            self.first_look_failure = self.first_look_failure or _in_words(what, error)
        self.log(what, error)

    def log(self, what: str, error: Exception) -> None:
        """Log the first failure of its kind without counting it, because nothing is lost by it yet."""
        kind = (what, type(error))
        if kind in self._reported:
            return
        self._reported.add(kind)
        logger.warning("%s failed and the training goes on without it: %s: %s", what, type(error).__name__, error)


class GuardedBlock:
    """The context of one `with`: a class, because a generator takes three times as long, several times a step."""

    __slots__ = ("_guard", "_what", "_writes")

    def __init__(self, guard: Guard, what: str, *, writes: bool = False) -> None:
        self._guard, self._what, self._writes = guard, what, writes

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            self._guard.failed(self._what, error, writes=self._writes)
            return True
        return False


def _in_words(what: str, error: Exception, *, max_letters: int = 200) -> str:
    """Return a failure as one short line."""
    line = " ".join(f"{what} failed: {type(error).__name__}: {error}".split())
    return line if len(line) <= max_letters else f"{line[: max_letters - 3]}..."
