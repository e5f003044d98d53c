"""What an address is, and which parts of it may be shown."""

import re

ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://", re.ASCII)
"""The beginning of an address; a Windows drive is a single letter."""

EXTRA_OF = {"s3": "remote", "http": "remote", "memory": "remote", "hdfs": "hdfs", "gs": "gs", "az": "az"}
"""The supported kinds of storage, and the extra of this package that installs their client."""

WILDCARDS = frozenset("*?[")

SPELLINGS = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "az", "abfss": "az", "https": "http", "webhdfs": "hdfs"}
"""Other schemes of each kind."""


def is_uri(text: str) -> bool:
    """Tell whether a text is an address, such as s3://bucket/runs/nano, and not a local path.

    >>> is_uri("s3://bucket/runs/nano"), is_uri("runs/nano"), is_uri("C://runs")
    (True, False, False)
    """
    return ADDRESS.match(text) is not None


def has_wildcard(text: str) -> bool:
    """Tell whether a text contains a wildcard, as in runs/*.

    >>> has_wildcard("runs/seed-?"), has_wildcard("runs/nano")
    (True, False)
    """
    return not WILDCARDS.isdisjoint(text)


def scheme_of(uri: str) -> str:
    """Return the scheme of an address in lower case."""
    match = ADDRESS.match(uri)
    return match[1].lower() if match else ""


def kind_of(uri: str) -> str:
    """Return the kind of storage of an address, such as s3 for s3a://.

    >>> kind_of("s3a://bucket/run"), kind_of("https://example.org/run.csv")
    ('s3', 'http')
    """
    scheme = scheme_of(uri)
    return SPELLINGS.get(scheme, scheme)


def shown(text: str) -> str:
    """Return an address for output: without user, password and, on the web, without its query, which may be signed.

    Other text is returned unchanged.

    >>> shown("https://ann:secret@example.org/run.csv?X-Amz-Signature=0af"), shown("runs/nano")
    ('https://example.org/run.csv', 'runs/nano')
    """
    if not is_uri(text):
        return text
    scheme, rest = text.split("://", 1)
    if kind_of(text) in ("http", "az"):  # a key of S3 may contain these characters; signed addresses are HTTP
        rest = re.split(r"[?#]", rest, maxsplit=1)[0]
    host, slash, path = rest.partition("/")
    user, at, server = host.rpartition("@")
    if at and kind_of(text) == "az":  # container@account
        host = f"{user.partition(':')[0]}@{server}"
    elif at:
        host = server
    return f"{scheme}://{host}{slash}{path}"
