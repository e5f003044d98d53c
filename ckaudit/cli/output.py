"""Destinations of output: the product to standard output or a file, messages to standard error, and the progress of long work."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import BinaryIO, TextIO

from ckaudit.cli.inputs import refuse_inputs
from ckaudit.errors import CkauditError, UsageError
from ckaudit.remote.addresses import as_given
from ckaudit.reports.escape import visible
from ckaudit.reports.view import View


def check_folder(output: str) -> None:
    """Raise `UsageError` if the folder of an output file does not exist, or the file is an input of the command."""
    folder = Path(output).parent
    if output and not folder.is_dir():
        raise UsageError(f"--output: there is no folder {folder}", hint="make it first")
    if output:
        refuse_inputs(Path(output))


def fit_to_stdout(view: View, *, drawn: bool) -> tuple[View, str]:
    """Return the view and encoding of standard output; a product that is not drawn is data, and the same everywhere.

    Args:
        view: The requested view.
        drawn: Whether the product is drawn for a terminal.
    """
    if not drawn:
        return view, "utf-8"
    from ckaudit.reports.terminal.screen_text import terminal_view

    return terminal_view(view, sys.stdout, os.environ), sys.stdout.encoding


def write_text(text: str, encoding: str = "utf-8", output: str = "") -> None:
    """Write a text to standard output, or to a file; characters outside the encoding are escaped.

    Raises:
        CkauditError: If it could not be written.
    """
    with open_output(output) as stream:
        stream.write(as_given(text).encode(encoding, "backslashreplace"))


@contextmanager
def open_output(output: str) -> Iterator[BinaryIO]:
    """Yield the stream for the product: standard output if `output` is empty, else that file."""
    if output:
        with _file(Path(output)) as stream:
            yield stream
        return
    try:
        sys.stdout.flush()
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        if error.filename is not None:
            raise  # the error is about a file that was read for the product
        redirect_to_devnull(sys.stdout)
        if not isinstance(error, BrokenPipeError):  # a reader that closed the pipe has seen enough, which is no error
            raise CkauditError(f"cannot write to standard output: {error.strerror}") from None


def redirect_to_devnull(stream: TextIO) -> None:
    """Redirect a broken stream to the null device: its buffered content would raise again when the interpreter closes it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def is_unwritable(stream: TextIO) -> bool:
    """Tell whether a stream could not be written to, and redirect it to the null device if so."""
    try:
        stream.flush()
    except OSError:
        redirect_to_devnull(stream)
        return True
    return False


@contextmanager
def _file(path: Path) -> Iterator[BinaryIO]:
    """Write a temporary file and rename it when complete; a device or a pipe is written directly."""
    from ckaudit.contract.io.files import replacing

    refuse_inputs(path)
    target = path.resolve()
    straight = target.exists() and not target.is_file()
    try:
        with target.open("wb") if straight else replacing(target) as stream:
            yield stream
    except OSError as error:
        raise CkauditError(f"cannot write {path}: {error.strerror}", hint="choose another --output") from None


# Messages to the user: single lines on standard error, with unsafe characters escaped.
def say(line: str) -> None:
    """Write one line to standard error, unless it is empty; a closed standard error changes no exit code."""
    if not line:
        return
    try:
        sys.stderr.write(visible(as_given(line), ascii_only=(sys.stderr.encoding or "").lower() != "utf-8") + "\n")
        sys.stderr.flush()
    except OSError:
        redirect_to_devnull(sys.stderr)


# A progress line on the terminal for long work; never in a pipe or a log.
ERASE = "\r\x1b[K"  # ECMA-48: to the line's start, erase to its end

Tick = Callable[[int, int], None]


@contextmanager
def progress(
    what: str, *, quiet: bool = False, patience: float = 0.5, every: float = 0.1, clock: Callable[[], float] = monotonic
) -> Iterator[Tick | None]:
    """Yield a function to call with (done, total), or None if standard error is no terminal.

    Args:
        what: The work, in one word.
        quiet: Show nothing.
        patience: Seconds before the first line: short work shows none.
        every: Seconds between two lines.
        clock: The clock.
    """
    stream = sys.stderr
    if quiet or not stream.isatty():
        yield None
        return
    due, drawn = clock() + patience, False

    def tick(done: int, total: int) -> None:
        nonlocal due, drawn
        if (now := clock()) >= due:
            due, drawn = now + every, True
            _draw(stream, f"{ERASE}{what} {done:,} of {total:,}")

    try:
        yield tick
    finally:
        if drawn:
            _draw(stream, ERASE)


def _draw(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
        stream.flush()
    except OSError:  # the terminal is gone, the work continues
        redirect_to_devnull(stream)
