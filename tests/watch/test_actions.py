"""A command and a web address are told of events: with everything in them, in bounded time, and the watch never waits."""

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from time import monotonic
from typing import ClassVar

import pytest

from ckaudit.contract.schema.report import Finding
from ckaudit.contract.schema.watch import VERSION, Likely, WatchEvent
from ckaudit.errors import UsageError
from ckaudit.watch.actions import Worker, command, webhook

FINDING = Finding(
    code="NUM001", name="nonfinite_values", severity="sev0", message="$(touch x); \0 it is NaN", where="loss", first_step=3
)
EVENT = WatchEvent(
    schema_version=VERSION,
    event="finding",
    time=1.5,
    run="runs/a",
    message=FINDING.message,
    step=7,
    severity="sev0",
    finding=FINDING,
    likely=Likely(cause="bad_batch", title="A batch is bad.", knob="Skip it.", confidence=0.9),
)


class Server(BaseHTTPRequestHandler):
    """Takes what is posted, after refusing as often as asked."""

    bodies: ClassVar[list[dict]] = []
    refusals: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.refusals:
            self.send_response(self.refusals.pop())
            self.send_header("Location", "/elsewhere")
        else:
            self.bodies.append(json.loads(body))
            self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    Server.bodies.clear()
    Server.refusals.clear()
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/hook"
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_address_gets_the_event_and_a_text_for_chat_programs(address: str) -> None:
    webhook(address)(EVENT)
    (body,) = Server.bodies
    assert body["finding"]["code"] == "NUM001"
    assert body["likely"]["cause"] == "bad_batch"
    assert body["text"].startswith("sev0 runs/a step 7: ")


def test_an_address_that_refuses_is_asked_again(address: str) -> None:
    Server.refusals.extend([503, 500])
    webhook(address, pause=0.01)(EVENT)
    assert len(Server.bodies) == 1


def test_an_address_that_does_not_answer_is_given_up_and_its_secret_is_not_told(address: str) -> None:
    Server.refusals.extend([500] * 3)
    with pytest.raises(ConnectionError, match=r"^127\.0\.0\.1 was not reached 3 times") as caught:
        webhook(address, pause=0.01)(EVENT)
    assert "hook" not in str(caught.value)


def test_nothing_is_sent_to_where_an_address_leads_on(address: str) -> None:
    Server.refusals.extend([302] * 3)
    with pytest.raises(ConnectionError):
        webhook(address, pause=0.01)(EVENT)
    assert Server.bodies == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://a/b", "example.org", "http://", "http://a:b/", ""])
def test_only_http_and_https_are_addresses(url: str) -> None:
    with pytest.raises(UsageError, match="--webhook"):
        webhook(url)


def python(code: str) -> str:
    return f'"{sys.executable}" -c "{code}"'


def test_a_command_gets_the_event_on_its_input_and_in_its_environment(tmp_path: Path) -> None:
    file = tmp_path / "got.json"
    code = (
        "import json, os, sys; own = {k: v for k, v in os.environ.items() if k.startswith('CKAUDIT_')}; "
        f"json.dump([json.load(sys.stdin), own], open('{file}', 'w'))"
    )
    command(python(code))(EVENT)
    event, own = json.loads(file.read_text())
    assert event["finding"]["first_step"] == 3
    assert own["CKAUDIT_MESSAGE"] == "$(touch x);  it is NaN"
    assert (own["CKAUDIT_SEVERITY"], own["CKAUDIT_STEP"], own["CKAUDIT_CODE"]) == ("sev0", "7", "NUM001")
    assert own["CKAUDIT_CAUSE"] == "bad_batch"


def test_a_command_is_not_read_by_a_shell(tmp_path: Path) -> None:
    marker = tmp_path / "made"
    command(f"{sys.executable} -c pass ; touch {marker}")(EVENT)
    assert not marker.exists()


def test_a_command_that_takes_too_long_is_ended() -> None:
    began = monotonic()
    with pytest.raises(TimeoutError, match="took longer"):
        command(python("import time; time.sleep(60)"), seconds=0.3)(EVENT)
    assert monotonic() - began < 10


def test_a_command_that_fails_is_complained_about_and_the_next_event_is_still_told() -> None:
    messages: list[str] = []
    done: list[WatchEvent] = []

    def act(event: WatchEvent) -> None:
        done.append(event)
        if len(done) == 1:
            command(python("raise SystemExit(3)"))(event)

    worker = Worker("--exec", act, messages.append)
    worker.put(EVENT)
    worker.put(EVENT)
    worker.finish(30)
    assert len(done) == 2
    assert messages == [f"--exec: RuntimeError: {sys.executable} ended with 3"]


def test_handing_over_never_waits_and_what_piles_up_is_dropped_with_a_word() -> None:
    messages: list[str] = []
    hold = threading.Event()
    worker = Worker("--exec", lambda _: hold.wait(10) and None, messages.append)
    began = monotonic()
    for _ in range(150):
        worker.put(EVENT)
    assert monotonic() - began < 1
    worker.finish(0.05)
    hold.set()
    assert messages == [
        "--exec is too slow: 100 events wait, and further ones are dropped",
        "--exec was not done after 0 s, and is left",
    ]


@pytest.mark.parametrize("line", ["", "   ", "sh -c 'open", "no-such-program 4711", "./nothing.sh"])
def test_what_is_no_command_is_refused(line: str) -> None:
    with pytest.raises(UsageError, match="--exec"):
        command(line)
