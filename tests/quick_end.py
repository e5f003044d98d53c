"""The end of a forked process, without the second in which the interpreter would take apart what a training has loaded."""

import atexit
import os
import sys
import threading


def run(program):
    """Run a program and end the process as the interpreter does, up to where it only frees memory."""
    code = 0
    try:
        program()
    except SystemExit as left:
        if not isinstance(left.code, int | None):
            raise
        code = left.code or 0
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
