"""`ckaudit` and `python -m ckaudit`: the only door in, and the answer to `--version` before anything is loaded."""

import gc
import os
import sys


def main() -> None:
    """Run the command line and leave the process with its exit code."""
    if sys.argv[1:] == ["--version"]:
        from ckaudit import __version__

        _print(f"ckaudit {__version__}\n")
        return
    # Nothing that one audit loads or reads is ever garbage: collecting would only walk it again and again.
    gc.disable()
    # Nothing here multiplies matrices: the threads that numpy's library would start only cost their start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # From a large block given back, glibc learns to keep what is freed (mallopt(3)); else each file costs new pages.
    bytes(31 * 2**20)
    from ckaudit.cli.run import run

    code = run(sys.argv[1:])
    gc.freeze()  # or the interpreter looks for garbage once more before it ends
    sys.exit(code)


def _print(text: str) -> None:
    """Write to standard output; a reader who has closed the pipe is no error."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter flushes once more and fails


if __name__ == "__main__":
    main()
