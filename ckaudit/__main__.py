"""`ckaudit` and `python -m ckaudit`: the only entry point; it answers `--version` before anything is loaded."""

import gc
import os
import sys


def main() -> None:
    """Run the command line and exit the process with its exit code."""
    open_closed_streams()
    if sys.argv[1:] == ["--version"]:
        from ckaudit import __version__

        sys.exit(_print(f"ckaudit {__version__}\n"))
    # Nothing that one audit loads or reads becomes garbage: collection would only traverse it again and again.
    gc.disable()
    # Nothing here multiplies matrices: the threads that numpy's library starts would only cost startup time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # After a large block is freed, glibc keeps freed memory (mallopt(3)); otherwise each file costs new pages.
    bytes(31 * 2**20)
    from ckaudit.cli.run import run

    code = run(sys.argv[1:])
    gc.freeze()  # otherwise the interpreter collects garbage once more before it exits
    sys.exit(code)


def open_closed_streams() -> None:
    """Replace standard streams that the caller has closed; otherwise the next file to be opened would take their place.

    Standard output then fails at every write, like a full disk; output to standard error is discarded.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 1 else os.O_WRONLY)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _print(text: str) -> int:
    """Write to standard output and return the exit code; a closed pipe is not an error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # otherwise the interpreter flushes once more and fails
        if not isinstance(error, BrokenPipeError):
            from ckaudit.cli.output import say

            say(f"error: cannot write to standard output: {error.strerror}")
            return 2
    return 0


if __name__ == "__main__":
    main()
