"""A command that trains without loading PyTorch: it asks a process that has, which forks. A training so costs a fifth."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
SERVER = """
import json, os, runpy, signal, socket, sys
import torch, torch.utils.data
import ckaudit.recorder.recorder, ckaudit.recorder.drill.session
from tests import quick_end

weight = torch.nn.Parameter(torch.zeros(1))
weight.sum().backward()
torch.optim.AdamW([weight]).step()  # what an optimizer loads with its first step
with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(sys.argv[1])
    listening.listen()
    while True:
        asking, _ = listening.accept()
        message, streams, _, _ = socket.recv_fds(asking, 2**20, 3)
        if os.fork():
            asking.close()
            for stream in streams:
                os.close(stream)
            continue
        words, folder, variables = json.loads(message)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        worker = os.fork()
        if not worker:
            sys.argv = words
            quick_end.run(lambda: runpy.run_path(words[0], run_name="__main__"))
        code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        asking.sendall(b"%d" % code)
        os._exit(0)
"""
CLIENT = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as asking:
    asking.connect(sys.argv[1])
    message = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(asking, [message], [0, 1, 2])
    os._exit(int(asking.recv(16)) & 255)
"""


class ForkedTrainings:
    """The process that has loaded PyTorch, and the command that asks it for a training.

    Args:
        folder: Where its socket is.
    """

    def __init__(self, folder: Path) -> None:
        self._socket = folder / "trainings"
        surroundings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(self._socket)], env=surroundings, stdin=subprocess.DEVNULL
        )
        while not self._answers():
            assert self._process.poll() is None
            time.sleep(0.05)

    def command(self, script: Path, *words: str) -> list[str]:
        """Return the command that runs a script."""
        return [sys.executable, "-S", "-E", "-c", CLIENT, str(self._socket), str(script), *words]

    def close(self) -> None:
        """End the process."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def _answers(self) -> bool:
        return self._socket.exists()
