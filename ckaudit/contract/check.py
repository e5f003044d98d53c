"""One checkpoint's bytes against the contract: syntax, schema and meaning."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec

from ckaudit.contract import violations
from ckaudit.contract.analysis import VERSION, Checkpoint
from ckaudit.contract.columns import Table, count_keys, table
from ckaudit.contract.decode import Decoded, decode, quote_bare_words
from ckaudit.contract.explain import explain
from ckaudit.contract.meaning import Subject, judge
from ckaudit.contract.report import Finding
from ckaudit.contract.unknown import duplicate_findings, unknown_fields, unknown_findings

SECTIONS = ("weights", "gradients", "weight_deltas", "activations", "attention")


@dataclass(frozen=True, slots=True)
class Checked:
    """A checkpoint where one could be read, its tables, and everything wrong with it."""

    document: Checkpoint | None
    tables: dict[str, Table]
    findings: list[Finding]


@cache
def checkpoint_decoder() -> msgspec.json.Decoder[Checkpoint]:
    """Return the decoder of whole checkpoints, built once."""
    return msgspec.json.Decoder(Checkpoint)


def check_checkpoint(data: bytes, file: str) -> Checked:
    """Judge one checkpoint by the first three levels: syntax, schema and meaning."""
    try:
        decoded = decode(data, checkpoint_decoder())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _refused(data, file)
    document = decoded.document
    tables = {name: table(section) for name in SECTIONS if (section := getattr(document, name))}
    findings = [*_forgiven(decoded, file)]
    if data.count(b":") != (known := _keys(document, tables)):
        findings += _extra_keys(data, file, known, bare=bool(decoded.bare_words or decoded.byte_order_mark))
    findings += judge(Subject(file, document, tables))
    return Checked(document, tables, findings)


def _refused(data: bytes, file: str) -> Checked:
    explained = explain(data, file, VERSION)
    versions = [finding for finding in explained.findings if finding.code == violations.UNKNOWN_VERSION.code]
    if versions:
        return Checked(None, {}, versions)
    if explained.findings:
        return Checked(None, {}, explained.findings)
    # The schema has nothing against it: a whole number written as 3.0, which the fast decoder refuses.
    document = msgspec.convert(explained.document, Checkpoint, strict=False)
    return check_checkpoint(msgspec.json.encode(document), file)


def _forgiven(decoded: Decoded[Any], file: str) -> list[Finding]:
    found = []
    if decoded.byte_order_mark:
        found.append(violations.BYTE_ORDER_MARK.at(file, "starts with a byte order mark"))
    if decoded.bare_words:
        found.append(violations.BARE_NAN.at(file, f"holds {decoded.bare_words} bare NaN or Infinity; they were read as recorded"))
    return found


def _keys(document: Checkpoint, tables: dict[str, Table]) -> int:
    sections = sum(section.keys + 1 for section in tables.values())
    rest = (getattr(document, name) for name in document.__struct_fields__ if name not in tables)
    present = [value for value in rest if value is not msgspec.UNSET]
    return sections + len(present) + sum(map(count_keys, present))


def _extra_keys(data: bytes, file: str, known: int, *, bare: bool) -> list[Finding]:
    """Say which keys the typed document lacks; a colon inside a name or a string is no key, and finds nothing."""
    quoted, _ = quote_bare_words(data.removeprefix(b"\xef\xbb\xbf")) if bare else (data, 0)
    unknown, keys = unknown_fields(msgspec.json.decode(quoted), Checkpoint)
    found = unknown_findings(unknown, file, VERSION)
    if known + keys != _separators(quoted):
        found += duplicate_findings(quoted.decode(), file)
    return found


def _separators(data: bytes) -> int:
    """Return how many colons of a JSON text stand outside its strings."""
    text = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return sum(part.count(b":") for part in text.split(b'"')[::2])
