"""Where a product goes: to standard output, or whole or not at all to a file."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ckaudit.errors import CkauditError, UsageError
from ckaudit.reports.view import View


def check_folder(output: str) -> None:
    """Raise `UsageError` where the folder of an output file is not there."""
    folder = Path(output).parent
    if output and not folder.is_dir():
        raise UsageError(f"--output: there is no folder {folder}", hint="make it first")


def fitted(view: View, *, drawn: bool) -> tuple[View, str]:
    """Return how standard output is drawn on, and in which encoding; what is not drawn is data, and the same everywhere.

    Args:
        view: What was asked for.
        drawn: Whether the product is for a terminal.
    """
    if not drawn:
        return view, "utf-8"
    from ckaudit.reports.terminal.text import screen

    return screen(view, sys.stdout, os.environ), sys.stdout.encoding


def send(text: str, encoding: str = "utf-8", output: str = "") -> None:
    """Write a text to standard output, or to a file; what the encoding does not have is escaped.

    Raises:
        CkauditError: If it could not be written.
    """
    with opened(output) as stream:
        stream.write(text.encode(encoding, "backslashreplace"))


@contextmanager
def opened(output: str) -> Iterator[BinaryIO]:
    """Give what to write the product to: standard output where `output` is empty, else that file."""
    if output:
        with _file(Path(output)) as stream:
            yield stream
        return
    try:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        # What is left in the buffer would raise again when the interpreter closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # a reader who has seen enough and closed the pipe is no error
            raise CkauditError(f"cannot write to standard output: {error.strerror}") from None


@contextmanager
def _file(path: Path) -> Iterator[BinaryIO]:
    """Write a file beside its place and rename it when whole; a device or a pipe is written straight."""
    target = path.resolve()
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    straight = target.exists() and not target.is_file()
    try:
        with (target if straight else partial).open("wb") as stream:
            yield stream
        if not straight:
            partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise CkauditError(f"cannot write {path}: {error.strerror}", hint="choose another --output") from None
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
