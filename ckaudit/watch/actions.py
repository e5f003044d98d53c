"""Actions of a watch on an event: a command or a webhook is called, without delaying the watch."""

import json
import os
import shlex
import subprocess
from collections.abc import Callable
from queue import Full, Queue
from shutil import which
from threading import Thread
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from ckaudit.contract.schema.watch import WatchEvent
from ckaudit.errors import UsageError

if TYPE_CHECKING:
    from subprocess import Popen

MAX_WAITING = 100  # pending events; slow commands must not pile up without limit
COMMAND_SECONDS = 60.0
REQUEST_SECONDS = 5.0
MAX_TRIES = 3
PAUSE_SECONDS = 1.0  # seconds before the second attempt, twice as many before the third
STANDARD_ERROR = 2  # output of a command goes there: standard output belongs to the watch
MAX_MESSAGE_LENGTH = 1000  # characters of a message in a command's environment

Act = Callable[[WatchEvent], None]
Complain = Callable[[str], None]


class Worker:
    """Handles events one after another in its own thread; events that arrive while too many are pending are dropped."""

    def __init__(self, what: str, act: Act, complain: Complain) -> None:
        """Start the thread.

        Args:
            what: Named in complaints.
            act: Handles an event; its exceptions are reported as complaints.
            complain: Takes a sentence.
        """
        self._what, self._act, self._complain = what, act, complain
        self._queue: Queue[WatchEvent] = Queue(MAX_WAITING)
        self._dropped = 0
        Thread(target=self._work, daemon=True, name=what).start()

    def put(self, event: WatchEvent) -> None:
        """Queue an event; returns at once."""
        try:
            self._queue.put_nowait(event)
        except Full:
            self._dropped += 1
            if self._dropped == 1:
                self._complain(f"{self._what} is too slow: {MAX_WAITING} events wait, and further ones are dropped")

    def finish(self, seconds: float) -> None:
        """Wait until all queued events are handled, for at most `seconds`."""
        waiting = self._queue
        with waiting.all_tasks_done:
            done = waiting.all_tasks_done.wait_for(lambda: not waiting.unfinished_tasks, seconds)
        if not done:
            self._complain(f"{self._what} was not done after {seconds:.0f} s, and is left")

    def _work(self) -> None:
        while True:
            event = self._queue.get()
            try:
                self._act(event)
            except Exception as error:  # noqa: BLE001  the watch goes on, whatever becomes of its messengers
                self._complain(f"{self._what}: {type(error).__name__}: {error}")
            self._queue.task_done()


def command(line: str, *, seconds: float = COMMAND_SECONDS) -> Act:
    """Return an action that runs a command without a shell, with the event as JSON on its input and in CKAUDIT_* variables.

    Raises:
        UsageError: If the line is not a valid command, or there is no such program.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"--exec: {error}", hint="quote it as for a shell; for pipes write --exec \"sh -c '...'\"") from None
    if not words:
        raise UsageError("--exec is empty", hint='name a command, as in --exec "scancel 4711"')
    if which(words[0]) is None:  # told now, not when the training is to be stopped
        raise UsageError(f"--exec: there is no program {words[0]}", hint="write it as you would type it; no shell reads it")

    def act(event: WatchEvent) -> None:
        process = subprocess.Popen(  # noqa: S603  the user's own command, and no shell reads it
            words,
            stdin=subprocess.PIPE,
            stdout=STANDARD_ERROR,
            env=os.environ | variables(event),
            start_new_session=os.name == "posix",
        )
        try:
            process.communicate(msgspec.json.encode(event), timeout=seconds)
        except subprocess.TimeoutExpired:
            _end(process)
            raise TimeoutError(f"{words[0]} took longer than {seconds:.0f} s and was ended") from None
        if process.returncode:
            raise RuntimeError(f"{words[0]} ended with {process.returncode}")

    return act


def variables(event: WatchEvent) -> dict[str, str]:
    """Return the environment variables of a command; NUL bytes, which end a variable, are removed."""
    finding = event.finding
    texts = {
        "CKAUDIT_EVENT": event.event,
        "CKAUDIT_RUN": event.run,
        "CKAUDIT_MESSAGE": event.message[:MAX_MESSAGE_LENGTH],
        "CKAUDIT_SEVERITY": event.severity or "",
        "CKAUDIT_STEP": "" if event.step is None else str(event.step),
        "CKAUDIT_CODE": finding.code if finding else "",
        "CKAUDIT_WHERE": (finding.where or "") if finding else "",
        "CKAUDIT_FIRST_STEP": "" if finding is None or finding.first_step is None else str(finding.first_step),
        "CKAUDIT_CAUSE": event.likely.cause if event.likely else "",
    }
    return {name: value.encode(errors="backslashreplace").decode().replace("\0", "") for name, value in texts.items()}


def webhook(url: str, *, seconds: float = REQUEST_SECONDS, tries: int = MAX_TRIES, pause: float = PAUSE_SECONDS) -> Act:
    """Return an action that posts an event as JSON.

    The body has the fields of ck.watch.v1, and `text`, which chat programs show.

    Raises:
        UsageError: If the address is not http or https.
    """
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or True)
    except ValueError:
        usable = False
    if not usable:
        raise UsageError("--webhook takes an address that begins with http:// or https://", hint="write the whole address")

    def act(event: WatchEvent) -> None:
        from time import sleep

        body = json.dumps(msgspec.to_builtins(event) | {"text": text(event)}).encode()
        for attempt in range(tries):
            try:
                _post(url, body, seconds)
            except OSError as error:
                if attempt == tries - 1:
                    # The address may contain a secret, so only its host is named.
                    raise ConnectionError(f"{parts.hostname} was not reached {tries} times: {error}") from None
                sleep(pause * 2**attempt)
            else:
                return

    return act


def text(event: WatchEvent) -> str:
    """Return an event as one sentence."""
    return f"{event.severity or event.event} {event.run} step {event.step}: {event.message}"


def _post(url: str, body: bytes, seconds: float) -> None:
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        """Refuses redirects: the content is meant for one address only."""

        def redirect_request(self, *_: object) -> None:
            """Refuse the redirect."""

    request = Request(url, body, {"Content-Type": "application/json", "User-Agent": "ckaudit"})  # noqa: S310  scheme checked
    try:
        build_opener(Stay).open(request, timeout=seconds).close()
    except HTTPError as refusal:
        refusal.close()
        raise ConnectionError(f"it answered {refusal.code}") from None


def _end(process: "Popen[bytes]") -> None:
    """Terminate a command and its children."""
    if os.name == "posix":
        import signal

        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()
