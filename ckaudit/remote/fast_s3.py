"""S3 through obstore, at a tenth of the cost of a Python client; if it fails, fsspec's client is tried, which explains errors."""

import os
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from ckaudit.remote import filesystem
from ckaudit.remote.location import kind_of, shown
from ckaudit.remote.storage import AnyStorage, Entry, last_name

PATIENCE = 30
"""Time-out of a whole answer, as a multiple of the time that the server may be silent."""

_PROCESS: list[int] = []
"""The process whose threads obstore uses: they do not survive a fork."""


class FastS3:
    """The objects below one address of S3."""

    def __init__(self, uri: str) -> None:
        """Open the client.

        Raises:
            ImportError: If obstore is not installed, or was used by the parent process before the fork.
        """
        if (_PROCESS or [os.getpid()])[0] != os.getpid():
            raise ImportError("obstore does not outlive a fork")
        from obstore.store import S3Store

        self.uri = uri
        self.bucket, _, key = shown(uri).split("://", 1)[1].partition("/")
        self.key = key.rstrip("/")
        self.store = S3Store(self.bucket, **_settings())
        self._slow: AnyStorage | None = None
        _PROCESS[:] = [os.getpid()]

    @property
    def slow(self) -> AnyStorage:
        """The fallback client, which supports everything and explains errors."""
        self._slow = self._slow or AnyStorage(self.uri)
        return self._slow

    def root_entry(self) -> Entry | None:
        """Return the address as one object; None if it is none."""
        return self.find_entry(self.key) if self.key else None

    def find_entry(self, path: str) -> Entry | None:
        """Return the current state of an object, by its name for the client; None if it no longer exists."""
        try:
            return _entry(last_name(self.uri), self.store.head(path))
        except Exception:  # noqa: BLE001  whatever it is: the other client says it
            entry = self.slow.find_entry(f"{self.bucket}/{path}")
            return entry and self._of_slow(entry)

    def entries(self, limit: int) -> list[Entry]:
        """Return the objects below the address, at most `limit` or a few more."""
        start = f"{self.key}/" if self.key else ""
        entries: list[Entry] = []
        try:
            for page in self.store.list(self.key or None, chunk_size=1000):
                entries += [_entry(facts["path"][len(start) :], facts) for facts in page if facts["path"].startswith(start)]
                if len(entries) >= limit:
                    break
        except Exception:  # noqa: BLE001
            return [self._of_slow(entry) for entry in self.slow.entries(limit)]
        return entries

    def read(self, entry: Entry, start: int, end: int | None) -> bytes:
        """Return the bytes of an object from `start` up to `end`; None: to its end."""
        try:
            if end is None:
                return bytes(self.store.get(entry.path).bytes())
            return bytes(self.store.get(entry.path, options={"range": (start, end)}).bytes())
        except Exception:  # noqa: BLE001
            return self.slow.read(entry._replace(path=f"{self.bucket}/{entry.path}"), start, end)

    def _of_slow(self, entry: Entry) -> Entry:
        """Return an entry of the fallback client by the name that this client uses."""
        return entry._replace(path=entry.path.removeprefix(f"{self.bucket}/"))


def serves(uri: str) -> bool:
    """Tell whether obstore can serve an address."""
    return kind_of(uri) == "s3"


def _entry(name: str, facts: Any) -> Entry:
    version = (facts.get("e_tag") or "").strip('"')
    time = facts["last_modified"].timestamp()
    return Entry(name, facts["path"], facts["size"], version or str(time), time)


def _settings() -> dict[str, Any]:
    """Return the arguments of the client; it reads the AWS_* variables itself, other settings come from the AWS tools."""
    connect, answer = filesystem.CONNECT_SECONDS, filesystem.ANSWER_SECONDS
    options: dict[str, Any] = {
        "connect_timeout": timedelta(seconds=connect),
        "read_timeout": timedelta(seconds=answer),
        "timeout": timedelta(seconds=answer * PATIENCE),  # of a whole answer, however steadily it comes
    }
    settings: dict[str, Any] = {"retry_config": {"max_retries": 1, "retry_timeout": timedelta(seconds=answer)}}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if os.environ.get("FSSPEC_S3_ANON", "").lower() == "true":
        settings["skip_signature"] = True
    elif not os.environ.get("AWS_ACCESS_KEY_ID") or os.environ.get("AWS_PROFILE"):
        from botocore.session import Session

        session = Session()
        endpoint = endpoint or session.get_scoped_config().get("endpoint_url")
        region = region or session.get_config_variable("region")
        settings["credential_provider"] = _Credentials(session)
    if endpoint:
        settings |= {"endpoint": endpoint, "virtual_hosted_style_request": False}
        options["allow_http"] = urlsplit(endpoint).scheme == "http"
    return {**settings, "region": region or "us-east-1", "client_options": options}


class _Credentials:
    """Passes the credentials that AWS tools find to obstore, for as long as they are valid."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def __call__(self) -> dict[str, Any]:
        credentials = self.session.get_credentials()
        if credentials is None:
            raise PermissionError("there are no credentials")
        frozen = credentials.get_frozen_credentials()
        expires = getattr(credentials, "_expiry_time", None)
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": expires,
        }
