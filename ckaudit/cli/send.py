"""The product: text to standard output, whatever is at its other end."""

import os
import sys

from ckaudit.errors import CkauditError


def send(text: str, encoding: str = "utf-8") -> None:
    """Write `text` whole; a reader who has seen enough and closed the pipe is no error.

    Raises:
        CkauditError: If it could not be written.
    """
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode(encoding, "backslashreplace"))
        sys.stdout.buffer.flush()
    except OSError as error:
        # What is left in the buffer would raise again when the interpreter closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise CkauditError(f"cannot write to standard output: {error.strerror}") from None
