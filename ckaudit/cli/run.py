"""The single handler of all errors: a line with the error, a line with a remedy, an exit code."""

import os
import sys
from collections.abc import Sequence
from errno import EACCES, EPERM

from ckaudit.cli.inputs import remember_inputs
from ckaudit.cli.output import is_unwritable, say
from ckaudit.errors import CkauditError, UsageError

CLEAN, COULD_NOT, INTERRUPTED = 0, 2, 130  # 130 is what a shell gives a program stopped by Ctrl-C: 128 + SIGINT
DENIED = (EACCES, EPERM)
RIGHTS = "look at its rights, and whether each folder above it may be entered (chmod u+x)"
ISSUES = "https://github.com/ckaudit/ckaudit/issues"


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return the exit code of the process."""
    try:
        from ckaudit.cli.app import invoke

        _refuse_empty(arguments)
        remember_inputs(arguments)
        code = int(invoke(arguments or ["--help"]) or CLEAN)
    except SystemExit as left:
        # Typer exits with 1 if the reader of its help has closed the pipe; that is no error.
        if isinstance(left.__context__, BrokenPipeError):
            return CLEAN if arguments else COULD_NOT
        raise
    except KeyboardInterrupt:
        code = INTERRUPTED
    except CkauditError as error:
        return _fail(str(error), error.hint)
    except (OSError, MemoryError) as error:
        return _refused(error)
    except Exception as error:  # noqa: BLE001  the last door before the user
        if not _follows_interrupt(error):
            return _unexpected(error)
        code = INTERRUPTED
    if code == INTERRUPTED:
        say("interrupted")
    # Without a command nothing was audited: the help is shown, and the exit code is not that of a clean run.
    return code if arguments else COULD_NOT


def _follows_interrupt(error: BaseException) -> bool:
    """Tell whether an error follows from Ctrl-C, for example because that interrupted the import of a library."""
    before = error.__context__
    return before is not None and (isinstance(before, KeyboardInterrupt) or _follows_interrupt(before))


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Raise `UsageError` if an argument is empty, as from an unset shell variable; an option with an empty value is allowed."""
    for place, (before, argument) in enumerate(zip(["", *arguments], arguments, strict=False), 1):
        if not argument and not before.startswith("-"):
            raise UsageError(f"argument {place} is empty", hint="Name a file or a folder; a shell variable may not be set.")


def _fail(message: str, hint: str) -> int:
    """Print an error and its remedy, and return the exit code of an audit that could not be made."""
    say(f"error: {message}")
    say(f"hint: {hint}" if hint else "")
    return COULD_NOT


def _refused(error: OSError | MemoryError) -> int:
    """Report an error of the system: files, disk and memory belong to the user, so it is no bug of ours."""
    _print_traceback(error)
    if isinstance(error, MemoryError):
        return _fail("there is not enough memory", "give it more, or audit a part of the run")
    reason = error.strerror or str(error)
    if error.filename is not None:
        return _fail(f"cannot reach {os.fsdecode(error.filename)}: {reason}", RIGHTS if error.errno in DENIED else "")
    if isinstance(error, BrokenPipeError) or is_unwritable(sys.stdout):
        return _fail(f"cannot write to standard output: {reason}", "")
    try:
        os.getcwd()  # noqa: PTH109  the call that fails
    except OSError:
        return _fail("the folder that this shell is in is no longer there", "go to one that is, and run the command again")
    return _fail(f"the system refused: {reason}", "")


def _print_traceback(error: BaseException) -> None:
    if os.environ.get("CKAUDIT_TRACEBACK"):
        import traceback

        traceback.print_exception(error)


def _unexpected(error: Exception) -> int:
    """Distinguish a wrong command line, which Typer raises as an exception that can format itself, from a bug."""
    if format_message := getattr(error, "format_message", None):
        context = getattr(error, "ctx", None)
        return _fail(format_message(), f"{context.command_path if context else 'ckaudit'} --help")
    _print_traceback(error)
    return _fail(
        f"this is a bug in ckaudit: {type(error).__name__}: {error}",
        f"run again with CKAUDIT_TRACEBACK=1 and report it: {ISSUES}",
    )
