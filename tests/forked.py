"""The program, and modules that train, in processes forked from one that has loaded their libraries: those are loaded once."""

import atexit
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
CLOSED = "closed"  # a pipe that nobody reads

# No catalogue is made here, so that each process still looks for plugins, and no library of an extra is loaded.
COMMANDS = """
import pkgutil
import ckaudit.cli.app
from ckaudit.__main__ import main

def load(package):
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, package + "."):
        load(module.name) if module.ispkg else importlib.import_module(module.name)

for name in ("audit", "causes", "contract", "diff", "metrics", "panels", "policy", "reports", "rules", "run", "validate"):
    load("ckaudit." + name)
for name in ("tomllib", "gzip", "numpy.ma", "zstandard"):
    importlib.import_module(name)
"""
TRAINERS = """
for name in ("torch", "transformers.trainer", "accelerate", "lightning.pytorch"):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        pass
import ckaudit.recorder, torch
torch.set_num_threads(1)
torch.optim.AdamW(torch.nn.Linear(1, 1).parameters())  # imports more of torch
"""
SERVER = """
from tests import quick_end, rights

def opened(place):
    if place != "closed":
        return os.open(place, os.O_WRONLY | os.O_CREAT)
    read, write = os.pipe()
    os.close(read)
    return write

replies = os.dup(1)
os.fsync = lambda descriptor: None  # as in the tests themselves
gc.freeze()  # or each forked process would look through the libraries for garbage, and so copy them
for line in sys.stdin:
    asked = json.loads(line)
    child = asked.get("ended") or os.fork()
    if not child:
        signal.alarm(asked["seconds"])
        for number, place in enumerate(asked["streams"], 1):
            os.dup2(opened(place), number)
        if asked["folder"]:
            os.chdir(asked["folder"])
        os.environ.update(asked["variables"])
        sys.path[1:1] = asked["sites"]
        assert not set(asked["without"]) & set(sys.modules)
        sys.modules.update(dict.fromkeys(asked["without"]))
        if asked.get("without_rights"):
            rights.give_up()
        sys.argv = [asked["program"], *asked["arguments"]]
        if asked["program"] == "ckaudit":
            quick_end.run(main)
        elif asked["program"].endswith(".py"):
            quick_end.run(lambda: runpy.run_path(asked["program"], run_name="__main__"))
        else:
            quick_end.run(lambda: runpy.run_module(asked["program"], run_name="__main__", alter_sys=True))
        sys.exit()
    goes_on = asked.get("goes_on")
    os.write(replies, b"%d\\n" % (child if goes_on else os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
os._exit(0)
"""


@cache
def _server(loads):
    kept = {
        key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR", "PYTHONIOENCODING")
    }
    surroundings = kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", f"import gc, importlib, json, os, runpy, signal, sys{loads}{SERVER}"]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=surroundings)
    atexit.register(server.communicate)  # it ends where its input ends
    return server


def ckaudit(*arguments, sites=(), without=(), cwd=None, out=None, err=None, without_rights=False, **variables):
    """Run the program, and return what it printed and its exit code, as `subprocess.run` does.

    Args:
        arguments: The words of its command line.
        sites: Folders with installed packages.
        without: Libraries that cannot be imported.
        cwd: The folder in which it runs.
        out: CLOSED where nobody reads what it prints.
        err: CLOSED where nobody reads its errors.
        without_rights: Whether it may enter and read no more than the modes of files say, also where root asks.
        variables: Environment variables.
    """
    asked = {"program": "ckaudit", "sites": [*map(str, sites)], "without": [*without], "folder": cwd and str(cwd), "seconds": 60}
    asked |= {"variables": variables, "without_rights": without_rights}
    return _asked(COMMANDS, asked, arguments, out, err)


def training(program, *arguments, cwd=ROOT, **variables):
    """Run a module or a file, which trains, and return what it printed and its exit code."""
    return _asked(TRAINERS, _trained(program, cwd, variables), arguments)


class Started:
    """A module that trains while the test goes on.

    Args:
        program: The module.
        arguments: The words of its command line.
        out: The file that it prints to.
        variables: Environment variables.

    Attributes:
        pid: Its process.
    """

    def __init__(self, program, *arguments, out, **variables):
        asked = _trained(program, ROOT, variables) | {"arguments": [*arguments], "goes_on": True}
        self.pid = _reply(TRAINERS, asked | {"streams": [str(out), f"{out}.err"]})

    def wait(self):
        """Wait until it has ended, and return its exit code."""
        return _reply(TRAINERS, {"ended": self.pid})


def _trained(program, folder, variables):
    return {"program": str(program), "sites": [], "without": [], "folder": str(folder), "variables": variables, "seconds": 300}


def _asked(loads, asked, arguments, out=None, err=None):
    words = [*map(str, arguments)]
    with TemporaryDirectory() as folder:
        streams = [out or f"{folder}/out", err or f"{folder}/err"]
        code = _reply(loads, asked | {"arguments": words, "streams": streams})
        told = ["" if each == CLOSED else Path(each).read_text(encoding="utf-8") for each in streams]
    return subprocess.CompletedProcess(words, code, *told)


def _reply(loads, asked):
    server = _server(loads)
    server.stdin.write(json.dumps(asked).encode() + b"\n")
    server.stdin.flush()
    return int(server.stdout.readline())
