"""The state of a watch for Prometheus: a text file for its node exporter, or an HTTP endpoint."""

import re
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isnan
from pathlib import Path
from threading import Thread
from time import monotonic, time

from ckaudit.contract.io.files import write_atomic
from ckaudit.contract.schema.report import SEVERITIES
from ckaudit.contract.schema.watch import Snapshot
from ckaudit.errors import CkauditError, UsageError

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
WRITE_SECONDS = 5.0  # seconds between two writes of the file

STATES = ("waiting", "running", "stalled", "ended")

LAST_PORT = 65_535
_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[A-Za-z0-9.-]*):(?P<port>\d{1,20})")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_]")


def exposition(snapshots: Sequence[Snapshot], *, now: float) -> str:
    """Return the runs in the text format of Prometheus (exposition 0.0.4).

    Args:
        snapshots: The runs.
        now: Unix time.
    """
    return "".join(f"{line}\n" for family in _families(snapshots, now) for line in family)


def _families(snapshots: Sequence[Snapshot], now: float) -> Iterator[list[str]]:
    yield _family("ckaudit_watch_runs", "Runs that were looked at.", [("", float(len(snapshots)))])
    yield _family("ckaudit_watch_time_seconds", "When this was written, Unix time.", [("", now)])
    steps = [(_labels(run=snapshot.run), float(snapshot.step)) for snapshot in snapshots if snapshot.step is not None]
    yield _family("ckaudit_run_step", "The last step recorded.", steps)
    planned = [(_labels(run=snapshot.run), float(snapshot.planned)) for snapshot in snapshots if snapshot.planned is not None]
    yield _family("ckaudit_run_planned_steps", "Steps that the run is to take.", planned)
    silence = [(_labels(run=snapshot.run), snapshot.silence) for snapshot in snapshots if snapshot.silence is not None]
    yield _family("ckaudit_run_silence_seconds", "Seconds since the last line, when it was looked at.", silence)
    states = [(_labels(run=snapshot.run, state=word), float(snapshot.state == word)) for snapshot in snapshots for word in STATES]
    yield _family("ckaudit_run_state", "1 for what the run does.", states)
    findings = [
        (_labels(run=snapshot.run, severity=word), float(sum(alert.severity == word for alert in snapshot.alerts)))
        for snapshot in snapshots
        for word in SEVERITIES
    ]
    yield _family("ckaudit_run_findings_total", "Findings that were told, the last 200.", findings, kind="counter")
    signs = [
        (_labels(run=snapshot.run, sign=sign.name), float(sign.since is not None))
        for snapshot in snapshots
        for sign in snapshot.early
        if sign.judged
    ]
    yield _family("ckaudit_run_early_sign", "1 where an early sign of an illness is there.", signs)
    gauges = [
        (snapshot.run, gauge) for snapshot in snapshots for gauge in (*snapshot.vitals, *snapshot.pace) if gauge.value is not None
    ]
    for name in dict.fromkeys(gauge.name for _, gauge in gauges):
        values = [(_labels(run=run), float(gauge.value or 0)) for run, gauge in gauges if gauge.name == name]
        unit = next(gauge.unit for _, gauge in gauges if gauge.name == name)
        yield _family(f"ckaudit_run_{_NOT_IN_NAMES.sub('_', name)}", f"The newest {name}, in {unit}.", values)


def _family(name: str, help_text: str, values: Sequence[tuple[str, float]], *, kind: str = "gauge") -> list[str]:
    if not values:
        return []
    escaped = help_text.replace("\\", "\\\\").replace("\n", "\\n")
    return [
        f"# HELP {name} {escaped}",
        f"# TYPE {name} {kind}",
        *(f"{name}{labels} {_digits(value)}" for labels, value in values),
    ]


def _labels(**labels: str) -> str:
    r"""Return labels in the form that follows a name.

    >>> print(_labels(run='a"b', state="x"))
    {run="a\"b",state="x"}
    """
    escaped = {name: text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for name, text in labels.items()}
    return "{" + ",".join(f'{name}="{text}"' for name, text in escaped.items()) + "}"


def _digits(value: float) -> str:
    """Return a number in the format of Prometheus.

    >>> _digits(3.0), _digits(float("inf")), _digits(float("nan"))
    ('3', '+Inf', 'NaN')
    """
    if isnan(value):
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


class Exporter:
    """Exports the state of a watch to Prometheus."""

    def __init__(self, where: str, complain: Callable[[str], None]) -> None:
        """Open the endpoint, or check that the file can be written.

        Args:
            where: A file, or `:PORT` or `HOST:PORT`; without a host only local requests are answered.
            complain: Takes a sentence.

        Raises:
            UsageError: If the port is invalid, or the folder of the file does not exist.
            CkauditError: If the port cannot be opened.
        """
        self._complain, self._drawn, self._text, self._has_complained = complain, float("-inf"), "", False
        self._server: ThreadingHTTPServer | None = None
        self._path: Path | None = None
        match = _PORT.fullmatch(where)
        if match is None:
            self._path = Path(where)
            if not self._path.parent.is_dir() or self._path.is_dir():
                raise UsageError(f"--prometheus {where} is no file that can be written", hint="or an endpoint, as :9464")
        else:
            self._open(match["host"].strip("[]") or "127.0.0.1", int(match["port"]))

    def _open(self, host: str, port: int) -> None:
        if port > LAST_PORT:
            raise UsageError(f"--prometheus: there is no port {port}", hint=f"ports go to {LAST_PORT}, as in :9464")
        exporter = self

        class MetricsHandler(BaseHTTPRequestHandler):
            """Answers with the newest text."""

            def do_GET(self) -> None:
                """Send the newest text."""
                known = self.path.partition("?")[0] in ("/", "/metrics")
                body = exporter._text.encode(errors="backslashreplace") if known else b"/metrics\n"
                self.send_response(200 if known else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing: standard error belongs to the watch."""

        try:
            self._server = ThreadingHTTPServer((host, port), MetricsHandler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise CkauditError(f"--prometheus: {host}:{port} cannot be opened: {reason}", hint="choose another port") from None
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, daemon=True, name="ckaudit prometheus").start()

    @property
    def port(self) -> int | None:
        """The port of the endpoint; None: it is a file."""
        return self._server.server_address[1] if self._server else None

    def update(self, snapshots: Callable[[], Sequence[Snapshot]], *, at_once: bool = False) -> None:
        """Update the exported state, if the last one is some seconds old."""
        if monotonic() - self._drawn < WRITE_SECONDS and not at_once:
            return
        self._text = exposition(snapshots(), now=round(time(), 3))
        self._drawn = monotonic()
        if self._path is None:
            return
        try:
            write_atomic(self._path, self._text.encode(errors="backslashreplace"))
        except OSError as error:
            if not self._has_complained:
                self._complain(f"--prometheus: cannot write {self._path}: {error.strerror or error}")
            self._has_complained = True
        else:
            self._has_complained = False

    def close(self) -> None:
        """Close the endpoint."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
