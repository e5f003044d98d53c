"""Storage that lies: names that lead out of the cache, listings without end; and the web, memory and paths of this machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape

import pytest
from fsspec.exceptions import FSTimeoutError
from fsspec.implementations.memory import MemoryFileSystem

from ckaudit.errors import CkauditError, UnreadableError, UsageError
from ckaudit.remote import filesystem, mirror
from ckaudit.remote.location import is_uri, kind_of, shown
from ckaudit.remote.mirror import local_copy
from ckaudit.remote.storage import AnyStorage
from tests.object_storage import environment, forget_clients

ROOT = Path(__file__).parents[2]
HEALTHY = ROOT / "fixtures/runs/healthy"


@contextmanager
def serving(handler) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Lying(BaseHTTPRequestHandler):
    """An S3 server that lists whatever keys a test names; without any, a thousand new ones on each page for ever."""

    protocol_version = "HTTP/1.1"
    keys: tuple[str, ...] = ()
    pages = 0

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" not in query:
            return self.answer(200, b"{}")
        type(self).pages += 1
        keys = self.keys or tuple(f"run/{self.pages:06}/{number:04}.json" for number in range(1000))
        more = "" if self.keys else f"<NextContinuationToken>{self.pages}</NextContinuationToken>"
        body = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
            f'<ETag>"0"</ETag><Size>{0 if key.endswith("/") else 2}</Size></Contents>'
            for key in keys
        )
        page = (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<Name>bucket</Name><Prefix>run/</Prefix><KeyCount>{len(keys)}</KeyCount><MaxKeys>1000</MaxKeys>"
            f"<IsTruncated>{'false' if self.keys else 'true'}</IsTruncated>{more}{body}</ListBucketResult>"
        )
        return self.answer(200, page.encode())

    def do_HEAD(self) -> None:
        self.answer(404, b"")

    def answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("ETag", '"0"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(params=["obstore", "s3fs"])
def lying(request, monkeypatch, tmp_path):
    handler = type("Handler", (Lying,), {})
    with serving(handler) as endpoint:
        for name, value in environment(endpoint).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CKAUDIT_CACHE", str(tmp_path / "cache"))
        if request.param == "s3fs":
            monkeypatch.setattr(mirror, "serves", lambda uri: False)
        forget_clients()
        yield handler
        forget_clients()


@pytest.mark.parametrize(
    "key",
    [
        "run/../../../etc/cron.d/x",
        "run/..",
        "run/a/../../b",
        "run//etc/passwd",
        "run/./a",
        "run/a\\..\\..\\b",
        "run/" + "n" * 256,
    ],
)
def test_names_that_would_leave_the_cache_are_refused(lying, tmp_path: Path, key: str) -> None:
    lying.keys = ("run/run.json", key)
    with pytest.raises(UnreadableError, match=r"^s3://bucket/run holds an object .*, which cannot be a file below a folder$"):
        local_copy("s3://bucket/run")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.name not in ("lock", "in_use")]
    assert {path.name for path in tmp_path.iterdir()} == {"cache"}


def test_an_object_below_another_is_refused(lying) -> None:
    lying.keys = ("run/a", "run/a/b")
    with pytest.raises(UnreadableError, match=r"'run/a/b'|'a/b', and another one of which that would be a folder"):
        local_copy("s3://bucket/run")


def test_odd_but_harmless_names_are_names(lying) -> None:
    odd = ("\u202egnp.json", "a b%2F+&<x>.json", "é.json", "..json", "...")
    lying.keys = (*(f"run/{name}" for name in odd), "run/", "run/folder/", "run/folder/sub/x.json")
    copy = local_copy("s3://bucket/run")
    assert {path.name for path in copy.iterdir()} == {*odd, "folder"}
    assert [path.name for path in (copy / "folder/sub").iterdir()] == ["x.json"]


def test_a_listing_without_end_is_told_and_not_gathered(lying, monkeypatch) -> None:
    monkeypatch.setattr(mirror, "MAX_OBJECTS", 5000)
    with pytest.raises(UnreadableError, match=r"^s3://bucket/run holds more than 5,000 objects$") as told:
        local_copy("s3://bucket/run")
    assert "below it" in told.value.hint
    assert lying.pages <= 6


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(monkeypatch, tmp_path):
    """Serve a folder as web servers do, with pages that list what is in it."""
    monkeypatch.setenv("CKAUDIT_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "site"
    folder.mkdir()
    with serving(partial(Quiet, directory=str(folder))) as address:
        yield folder, address


def test_runs_on_the_web_are_read_by_file_and_by_folder(web) -> None:
    folder, address = web
    (folder / "runs").mkdir()
    (folder / "runs/nano").symlink_to(HEALTHY)
    (folder / "runs/log one.csv").write_text("step,loss\n1,2\n")
    for uri in (f"{address}/runs/nano/", f"{address}/runs/nano"):
        copy = local_copy(uri)
        assert copy.name == "nano"
        assert {path.name for path in copy.iterdir()} == {path.name for path in HEALTHY.iterdir()}
        assert (copy / "run.json").read_bytes() == (HEALTHY / "run.json").read_bytes()
    signed = f"{address}/runs/log%20one.csv?X-Amz-Signature=secret"
    assert local_copy(signed).name == "log one.csv"
    assert local_copy(signed).read_text() == "step,loss\n1,2\n"


def test_what_is_wrong_on_the_web_is_told_without_what_signs_the_address(web, monkeypatch) -> None:
    _, address = web
    with pytest.raises(UnreadableError, match=r"/nope.csv does not exist$"):
        local_copy(f"{address}/nope.csv?sig=secret")
    with pytest.raises(UnreadableError, match=r"/nope does not exist$"):
        local_copy(f"{address}/nope")
    codes = {403: "may not be read", 401: "may not be read", 503: "the server is too busy"}
    monkeypatch.setattr(filesystem, "LONGEST_WAIT", 0.01)
    for code, message in codes.items():
        answer = {name: partial(lambda self, code=code: self.send_error(code)) for name in ()}
        handler = type("Failing", (Quiet,), {"do_GET": lambda self, code=code: self.send_error(code), **answer})
        handler.do_HEAD = handler.do_GET
        with serving(handler) as failing, pytest.raises(UnreadableError) as told:
            local_copy(f"http://ann:pass@{failing.removeprefix('http://')}/a.csv?sig=secret")
        assert message in str(told.value), told.value
        assert not {word for word in ("secret", "pass@", "ann") if word in str(told.value) + told.value.hint}


def test_links_that_lead_out_of_a_page_or_round_in_a_circle_are_not_followed(web) -> None:
    folder, address = web
    (folder / "run").mkdir()
    (folder / "secret.json").write_text("no")
    (folder / "run/run.json").write_text("{}")
    (folder / "run/index.html").write_text(
        '<a href="../">up</a><a href="/secret.json">s</a><a href="%2e%2e/secret.json">s</a>'
        '<a href="?C=N;O=D">sort</a><a href="run.json">run</a><a href="./">self</a>'
    )
    try:
        copy = local_copy(f"{address}/run/")
    except UnreadableError as error:
        assert "cannot be a file below a folder" in str(error)  # noqa: PT017
    else:
        assert {path.name for path in copy.iterdir()} == {"run.json"}


def test_memory_of_this_process_is_an_address_too(tmp_path, monkeypatch) -> None:
    import fsspec

    monkeypatch.setenv("CKAUDIT_CACHE", str(tmp_path))
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/runs/nano/run.json", b"{}")
    try:
        assert (local_copy("memory://runs/nano") / "run.json").read_bytes() == b"{}"
        memory.pipe_file("/runs/nano/run.json", b"[]")
        assert (local_copy("memory://runs/nano") / "run.json").read_bytes() == b"[]"
        with pytest.raises(UnreadableError, match="memory://runs/micro does not exist"):
            local_copy("memory://runs/micro")
    finally:
        memory.rm("/runs", recursive=True)


def test_paths_of_this_machine_are_themselves(tmp_path: Path) -> None:
    assert local_copy("runs/nano") == Path("runs/nano")
    assert local_copy(tmp_path) == tmp_path
    assert local_copy((tmp_path / "a b").as_uri()) == tmp_path / "a b"
    with pytest.raises(UnreadableError, match=r"file://elsewhere/x is not on this machine"):
        local_copy("file://elsewhere/x")


@pytest.mark.parametrize(
    ("uri", "error", "message"),
    [
        ("ftp://host/run", UsageError, "nothing here reads ftp:// addresses"),
        ("gs://bucket/run", UnreadableError, r"to read it takes gcsfs, which is not installed"),
        ("abfs://c@account/run", UnreadableError, r"to read it takes adlfs, which is not installed"),
    ],
)
def test_what_reads_an_address_is_named_where_it_is_missing(uri: str, error: type[Exception], message: str, tmp_path) -> None:
    with pytest.raises(error, match=message):
        local_copy(uri, cache=tmp_path)


def test_the_limit_of_the_cache_is_a_number(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("CKAUDIT_CACHE_GB", "a few")
    import fsspec

    fsspec.filesystem("memory").pipe_file("/limit/run.json", b"{}")
    with pytest.raises(UsageError, match="CKAUDIT_CACHE_GB='a few' is not a number of gigabytes"):
        local_copy("memory://limit", cache=tmp_path)


def test_a_cache_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/limit/run.json", b"{}")
    (tmp_path / "file").write_text("")
    with pytest.raises(CkauditError, match=r"the cache .*file cannot be written: ") as told:
        local_copy("memory://limit", cache=tmp_path / "file")
    assert "CKAUDIT_CACHE" in told.value.hint


def test_what_is_shown_of_an_address_is_no_secret() -> None:
    assert shown("s3://bucket/a?b") == "s3://bucket/a?b"  # a key may hold it
    assert shown("s3://id:secret@bucket/run") == "s3://bucket/run"
    assert shown("abfs://box:secret@account.dfs/run?sig=x") == "abfs://box@account.dfs/run"
    assert shown("https://host/run#token=x") == "https://host/run"
    assert is_uri("S3://Bucket/run")
    assert kind_of("S3A://bucket") == "s3"
    assert not is_uri("C:\\runs")
    assert not is_uri("runs/s3://odd")


class RefusedError(Exception):
    """What Azure's and Google's clients raise: the status stands under a name of their own."""

    def __init__(self, words: str, **facts: int) -> None:
        super().__init__(words)
        self.__dict__ |= facts


@pytest.mark.parametrize(
    ("error", "uri", "words"),
    [
        (RefusedError("Server failed to authenticate", status_code=403), "az://bucket/run", "az login"),
        (RefusedError("Invalid Credentials", code=401), "gs://bucket/run", "GOOGLE_APPLICATION_CREDENTIALS"),
        (ValueError("Must provide either a connection_string or account_name with credentials!!"), "az://b/r", "az login"),
        (RefusedError("gone", code=404), "gs://bucket/run", "spelled as the storage lists it"),
    ],
)
def test_every_clients_words_for_keys_that_do_not_fit_are_understood(error, uri, words):
    told = filesystem.unreadable(error, uri)
    assert words in told.hint
    assert uri in str(told)


class Deaf(MemoryFileSystem):
    """A storage whose client asks again and again by itself, and never gets an answer."""

    cachable = False
    asked = 0

    def info(self, path, timeout=None):
        type(self).asked += 1
        assert timeout == filesystem.ANSWER_SECONDS
        raise FSTimeoutError


def test_a_client_that_asks_again_by_itself_is_asked_once_and_within_bounds(monkeypatch):
    monkeypatch.setattr("ckaudit.remote.storage.open_filesystem", lambda _: (Deaf(), "/bucket/run"))
    storage = AnyStorage("az://bucket/run")
    with pytest.raises(FSTimeoutError):
        storage.entries(10)
    assert Deaf.asked == 1
    assert "again and again" in str(filesystem.unreadable(FSTimeoutError(), "az://bucket/run"))
