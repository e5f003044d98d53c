"""`run.json` against its contract: syntax, schema, and what it can never truthfully say about itself."""

from functools import cache
from typing import Any

import msgspec

from ckaudit.contract import violations
from ckaudit.contract.decode import decode
from ckaudit.contract.json_locations import with_lines
from ckaudit.contract.manifest import VERSION, Manifest
from ckaudit.contract.report import Finding
from ckaudit.contract.unknown_fields import duplicate_findings, unknown_fields, unknown_findings
from ckaudit.validate.manifest_meaning import judge_manifest


@cache
def _decoder() -> msgspec.json.Decoder[Manifest]:
    return msgspec.json.Decoder(Manifest)


def check_manifest(data: bytes, file: str) -> tuple[Manifest | None, list[Finding]]:
    """Return the manifest, where it can be read, and everything wrong with it."""
    try:
        decoded = decode(data, _decoder())
        plain = msgspec.json.decode(decoded.text)  # a field that the contract does not know can be broken too
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _refused(data, file)
    findings = []
    if decoded.byte_order_mark:
        findings.append(violations.BYTE_ORDER_MARK.at(file, "starts with a byte order mark"))
    if decoded.bare_words:
        message = f"holds {decoded.bare_words} bare NaN or Infinity; they were read as recorded"
        findings.append(violations.BARE_NAN.at(file, message))
    return decoded.document, findings + _judge(decoded.document, plain, decoded.text, file)


def _refused(data: bytes, file: str) -> tuple[Manifest | None, list[Finding]]:
    from ckaudit.contract.explain import explain

    explained = explain(data, file, VERSION)
    versions = [finding for finding in explained.findings if finding.code == violations.UNKNOWN_VERSION.code]
    if explained.findings or explained.text is None:
        return None, versions or explained.findings
    # The schema has nothing against it: a whole number written as 3.0, which the fast decoder refuses.
    manifest = msgspec.convert(explained.document, Manifest, strict=False)
    return manifest, _judge(manifest, explained.document, explained.text, file)


def _judge(manifest: Manifest, document: dict[str, Any], text: bytes, file: str) -> list[Finding]:
    unknown, _ = unknown_fields(document, Manifest)
    placed = [*unknown_findings(unknown, file, VERSION), *judge_manifest(manifest, file)]
    return [*with_lines(placed, text), *duplicate_findings(text.decode(), file)]
