"""`run.json` checked against its contract: syntax, schema, and contradictions within it."""

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from math import prod
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ckaudit.contract import violations
from ckaudit.contract.io.codec import decode, is_deep
from ckaudit.contract.io.json_locations import escape, with_lines
from ckaudit.contract.schema.manifest import VERSION, Manifest, TensorFacts
from ckaudit.contract.schema.numbers import Number
from ckaudit.contract.schema.report import Finding
from ckaudit.contract.unknown_fields import duplicate_findings, unknown_fields, unknown_findings
from ckaudit.validate.catalogue import BAD_CADENCE, BAD_PLAN, BAD_TABLE, LOOK_ERRORS, NO_END, SESSION_ORDER, WRITE_ERRORS


@cache
def _decoder() -> msgspec.json.Decoder[Manifest]:
    return msgspec.json.Decoder(Manifest)


def check_manifest(data: bytes, file: str) -> tuple[Manifest | None, list[Finding]]:
    """Return the manifest, if it can be read, and everything wrong with it."""
    try:
        decoded = decode(data, _decoder())
        plain = msgspec.json.decode(decoded.text)  # an unknown field can be malformed too
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _refused(data, file)
    if is_deep(plain):
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
    # The schema accepts it: only the fast decoder refuses a whole number written as 3.0.
    manifest = msgspec.convert(explained.document, Manifest, strict=False)
    return manifest, _judge(manifest, explained.document, explained.text, file)


def _judge(manifest: Manifest, document: dict[str, Any], text: bytes, file: str) -> list[Finding]:
    unknown, _ = unknown_fields(document, Manifest)
    placed = [*unknown_findings(unknown, file, VERSION), *judge_manifest(manifest, file)]
    return [*with_lines(placed, text), *duplicate_findings(text.decode(), file)]


# Contradictions within `run.json`: in plans, sessions and tables.
def judge_manifest(manifest: Manifest, file: str) -> list[Finding]:
    """Return the contradictions within a manifest."""
    checks = (_cadence, _plan, _session_order, _session_ends, _recorder_errors, _ties, _parameters)
    return [finding for check in checks for finding in check(manifest, file)]


def _cadence(manifest: Manifest, file: str) -> Iterator[Finding]:
    last = 0
    for index, stretch in enumerate(manifest.cadence or ()):
        place = f"/cadence/{index}"
        if stretch.every == 0:
            yield BAD_CADENCE.at(file, f"{place} asks for a checkpoint every 0 steps", pointer=f"{place}/every")
        if index and manifest.cadence and manifest.cadence[index - 1].until is None:
            yield BAD_CADENCE.at(file, f"{place} follows a stretch that never ends", pointer=place)
        if stretch.until is not None and stretch.until <= last:
            message = f"{place} ends at step {stretch.until}, not after step {last}"
            yield BAD_CADENCE.at(file, message, pointer=f"{place}/until", expected=f"more than {last}")
        last = max(last, stretch.until or 0)


def _plan(manifest: Manifest, file: str) -> Iterator[Finding]:
    last = float("-inf")
    for index, point in enumerate(manifest.planned_learning_rate or ()):
        place = f"/planned_learning_rate/{index}"
        if len(point) != 2 or isinstance(point[0], str) or isinstance(point[1], str):
            yield BAD_PLAN.at(file, f"{place} is not a pair of numbers", pointer=place, expected="[step, value]")
        elif point[0] <= last:
            yield BAD_PLAN.at(file, f"{place} is at step {point[0]:g}, not after {last:g}", pointer=place)
        else:
            last = point[0]
    warmup, planned = manifest.warmup_steps, manifest.planned_steps
    if warmup is not UNSET and planned is not UNSET and warmup > planned:
        message = f"warm-up takes {warmup} steps, the whole run {planned}"
        yield BAD_PLAN.at(file, message, pointer="/warmup_steps", expected=f"at most {planned}", found=str(warmup))


def _session_order(manifest: Manifest, file: str) -> Iterator[Finding]:
    sessions = manifest.sessions or []
    for index, session in enumerate(sessions):
        if _before(session.end, session.start):
            message, expected, found = f"session {index} ends before it starts", f"at least {session.start}", str(session.end)
            yield SESSION_ORDER.at(file, message, pointer=f"/sessions/{index}/end", expected=expected, found=found)
    for index, (older, newer) in enumerate(pairwise(sessions), 1):
        if _before(newer.start, older.start):
            message = f"session {index} starts before session {index - 1}"
            yield SESSION_ORDER.at(file, message, pointer=f"/sessions/{index}/start")


def _before(one: Number | UnsetType, other: Number | UnsetType) -> bool:
    return isinstance(one, (int, float)) and isinstance(other, (int, float)) and one < other


def _session_ends(manifest: Manifest, file: str) -> Iterator[Finding]:
    for index, session in enumerate(manifest.sessions or ()):
        if session.end is UNSET:
            message = f"session {index} has no end: it was cut off, or it is still running"
            yield NO_END.at(file, message, pointer=f"/sessions/{index}")


def _recorder_errors(manifest: Manifest, file: str) -> Iterator[Finding]:
    for index, session in enumerate(manifest.sessions or ()):
        if session.write_errors:
            of_what = (
                "of the recorder, to write or to look"
                if session.look_errors is UNSET
                else "to write a file, a checkpoint or a line"
            )
            message = f"session {index} counts {session.write_errors} failures {of_what}{_first(session.first_write_error)}"
            yield WRITE_ERRORS.at(file, message, pointer=f"/sessions/{index}/write_errors", found=str(session.write_errors))
        elif session.checkpoint_ok is False:
            message = f"session {index} says that not every file was written whole"
            yield WRITE_ERRORS.at(file, message, pointer=f"/sessions/{index}/checkpoint_ok", found="false")
        if session.look_errors:
            message = f"session {index} counts {session.look_errors} failures to look at a part{_first(session.first_look_error)}"
            yield LOOK_ERRORS.at(file, message, pointer=f"/sessions/{index}/look_errors", found=str(session.look_errors))


def _first(error: str | UnsetType) -> str:
    return "" if error is UNSET else f", the first: {error}"


def _ties(manifest: Manifest, file: str) -> Iterator[Finding]:
    tensors = manifest.tensors or {}
    for name, tensor in tensors.items():
        if tensor.tied_to is not UNSET and (tensor.tied_to == name or tensor.tied_to not in tensors):
            message = f"{name} is tied to {tensor.tied_to}, which is {'itself' if tensor.tied_to == name else 'not in the table'}"
            yield BAD_TABLE.at(file, message, pointer=f"/tensors/{escape(name)}/tied_to", where=name)


def _parameters(manifest: Manifest, file: str) -> Iterator[Finding]:
    counted = _count(list((manifest.tensors or {}).values()))
    if counted is not None and manifest.parameters is not UNSET and counted != manifest.parameters:
        message = f"parameters is {manifest.parameters:,}, but the trainable tensors of the table hold {counted:,}"
        expected, found = str(counted), str(manifest.parameters)
        yield BAD_TABLE.at(file, message, pointer="/parameters", expected=expected, found=found)


def _count(tensors: list[TensorFacts]) -> int | None:
    """Return the number of trainable elements, a shared tensor once; None if the table is incomplete."""
    total = 0
    for tensor in tensors:
        if tensor.tied_to is not UNSET or tensor.trainable is False:
            continue
        if tensor.shape is UNSET or tensor.trainable is UNSET:
            return None
        total += prod(tensor.shape)
    return total if tensors else None
