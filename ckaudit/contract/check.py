"""Check of one checkpoint's bytes against the contract: syntax, schema and meaning."""

from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from ckaudit.contract import violations
from ckaudit.contract.checks import CheckInput, run_checks
from ckaudit.contract.io.codec import BOM, Decoded, decode, decode_whole, is_deep, whole_or_float
from ckaudit.contract.io.columns import SectionColumns, count_colons, table
from ckaudit.contract.io.json_locations import with_lines
from ckaudit.contract.schema.checkpoint import VERSION, Checkpoint
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.unknown_fields import (
    MAX_LISTED,
    duplicate_findings,
    unknown_fields,
    unknown_findings,
    unknown_words,
    with_open_words,
    word_finding,
)

SECTIONS = ("weights", "gradients", "weight_deltas", "activations", "attention")


class CheckedCheckpoint(Struct, frozen=True):
    """A checkpoint, if it could be read, its tables, and everything wrong with it."""

    document: Checkpoint | None
    tables: dict[str, SectionColumns]
    findings: list[Finding]


@cache
def checkpoint_decoder() -> msgspec.json.Decoder[Checkpoint]:
    """Return the decoder of whole checkpoints, built once."""
    return msgspec.json.Decoder(Checkpoint)


def check_checkpoint(data: bytes, file: str) -> CheckedCheckpoint:
    """Check one checkpoint on the first three levels: syntax, schema and meaning."""
    try:
        return _accepted(decode(data, checkpoint_decoder()), file)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _accepted_all_the_same(data, file) or _refused(data, file)


@cache
def _open_decoder() -> msgspec.json.Decoder[Checkpoint]:
    return msgspec.json.Decoder(_open_type())


def _open_type() -> type[Checkpoint]:
    return cast("type[Checkpoint]", with_open_words(Checkpoint))


def _accepted_all_the_same(data: bytes, file: str) -> CheckedCheckpoint | None:
    """Check a document with only unknown words, or whole numbers such as 3.0; None if it has other faults."""
    try:
        decoded = _decoded_openly(data)
        if decoded is None:
            return None
        words = islice(unknown_words(decoded.document), MAX_LISTED)
        findings = with_lines([word_finding(word, file) for word in words], decoded.text)
        checked = _accepted(decoded, file)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return replace(checked, findings=[*findings, *checked.findings])


def _decoded_openly(data: bytes) -> Decoded[Checkpoint] | None:
    try:
        return decode(data, _open_decoder())
    except msgspec.ValidationError:
        document = decode_whole(data, _open_type())
        return None if document is None else Decoded(document, data)


def _accepted(decoded: Decoded[Checkpoint], file: str) -> CheckedCheckpoint:
    """Check a document that the schema accepts: surplus text, and contradictions.

    Args:
        decoded: The typed document with the text it came from.
        file: Its name in findings.
    """
    document = decoded.document
    tables = {name: table(section) for name in SECTIONS if (section := getattr(document, name))}
    findings = forgiven_text_findings(decoded, file)
    text = decoded.text
    known_colons = sum(section.keys + 1 for section in tables.values()) + sum(colons_elsewhere(document, tables))
    # A name can hold a colon, and a backslash can hide one or spell a key in two ways: both need a full comparison.
    if text.count(b":") != known_colons or b"\\" in text:
        known_colons += sum(section.colons_in_text() for section in tables.values())
        if text.count(b":") != known_colons or b"\\" in text:
            plain = msgspec.json.decode(text)
            if is_deep(plain):
                raise RecursionError
            findings += _extra_keys(text, file, plain, known_colons)
    if wrong := run_checks(CheckInput(file, document, tables)):
        findings += with_lines(wrong, text)
    return CheckedCheckpoint(document, tables, findings)


def _refused(data: bytes, file: str) -> CheckedCheckpoint:
    """Explain why the fast decoder refused a document, or accept it after all.

    If the version is unknown, nothing else is reported, because other violations would be those of another contract. If the text
    can be parsed, bare words and unknown or duplicate keys are reported as well.
    """
    from ckaudit.contract.explain import explain

    explained = explain(data, file, VERSION)
    versions = [finding for finding in explained.findings if finding.code == violations.UNKNOWN_VERSION.code]
    if versions or explained.text is None:
        return CheckedCheckpoint(None, {}, versions or explained.findings)
    readable = Decoded(explained.document, explained.text, explained.bare_words, data.startswith(BOM))
    if explained.findings:
        extra = _extra_keys(explained.text, file, explained.document) if isinstance(explained.document, dict) else []
        return CheckedCheckpoint(None, {}, [*explained.findings, *forgiven_text_findings(readable, file), *extra])
    # The schema accepts the document: only the fast decoder refuses a whole number written as 3.0.
    import json

    document = json.loads(explained.text, parse_float=whole_or_float)
    return _accepted(replace(readable, document=msgspec.convert(document, Checkpoint)), file)


def forgiven_text_findings(decoded: Decoded[Any], file: str) -> list[Finding]:
    """Return a finding for each kind of illegal text that was read nevertheless."""
    findings = []
    if decoded.byte_order_mark:
        mark = {"pointer": "", "line": 1, "expected": "{", "found": "EF BB BF"}
        findings.append(violations.BYTE_ORDER_MARK.at(file, "starts with a byte order mark", **mark))
    if decoded.bare_words:
        count = decoded.bare_words
        message = f"holds {count} bare NaN or Infinity; they were read as recorded"
        findings.append(violations.BARE_NAN.at(file, message, pointer="", expected='"NaN" in quotes', found=f"{count} without"))
    return findings


def colons_elsewhere(document: Checkpoint, tables: dict[str, SectionColumns]) -> Iterator[int]:
    """Yield the number of colons of each part without a table."""
    for name in document.__struct_fields__:
        if name not in tables and (value := getattr(document, name)) is not msgspec.UNSET:
            yield 1 + count_colons(value)


def _extra_keys(text: bytes, file: str, document: dict[str, Any], known_colons: int | None = None) -> list[Finding]:
    """Return findings on unknown and duplicate keys.

    Args:
        text: The JSON text.
        file: Its name in findings.
        document: The document as parsed without types.
        known_colons: Number of colons of all known parts; None if not counted.
    """
    unknown, hidden = unknown_fields(document, Checkpoint)
    findings = unknown_findings(unknown, file, VERSION)
    whole = count_colons(document) if known_colons is None else known_colons + hidden
    if whole != text.count(b":") or b"\\" in text:
        findings += duplicate_findings(text.decode(), file)
    return findings
