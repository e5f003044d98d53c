"""SARIF 2.1.0, the OASIS format read by code hosts and editors."""

import os
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ckaudit.contract.schema.report import Check, Diagnosis, Finding, Report, Suppressed, place_key
from ckaudit.remote.location import is_uri
from ckaudit.reports import words
from ckaudit.reports.escape import visible
from ckaudit.reports.json import dumps
from ckaudit.reports.report_sections import policy_sentences, why_suppressed
from ckaudit.reports.view import PLAIN, View

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RUN = "RUN"  # the base for addresses in an audited folder elsewhere, see `originalUriBaseIds`


def render(report: Report, view: View = PLAIN) -> str:
    """Return `report` as one SARIF run: a result per finding, and a rule per code with results."""
    rules = _rules(report)
    places = {rule["id"]: index for index, rule in enumerate(rules)}
    seen: Counter[str] = Counter()
    causes = {code: diagnosis for diagnosis in reversed(report.diagnoses) for code in diagnosis.explains}
    results = [
        _result(finding, places[finding.code], view, seen)
        | _message(finding, causes.get(finding.code))
        | _state(report, suppressed)
        for finding, suppressed in _findings_with_suppressions(report)
    ]
    name, _, version = report.tool.partition(" ")
    driver = {"name": name, "version": version or "0", "rules": rules}
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"description": _text(f"{name} {report.command} {report.subject}")},
        "invocations": [_invocation(report)],
        "columnKind": "unicodeCodePoints",
        "results": results,
    }
    if _is_outside(view.base):
        run["originalUriBaseIds"] = {RUN: {"uri": _absolute(view.base) + "/"}}
    return dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def _invocation(report: Report) -> dict[str, Any]:
    """Return how the audit itself went: the checks that broke, and notes on the policy and on what is missing."""
    broken = words.broken_checks(report.checks)
    invocation: dict[str, Any] = {
        "executionSuccessful": not broken,
        "toolExecutionNotifications": [
            {"level": "error", "message": _text(f"{check.code} broke: {check.detail or 'no detail'}")} for check in broken
        ],
    }
    if notes := [*policy_sentences(report), *words.limits(report), *words.advice(report)]:
        invocation["toolConfigurationNotifications"] = [{"level": "note", "message": _text(sentence)} for sentence in notes]
    return invocation


def _findings_with_suppressions(report: Report) -> list[tuple[Finding, Suppressed | None]]:
    """Return every finding; those that do not count come last, with their suppression."""
    return [
        *((finding, None) for finding in report.findings),
        *((suppressed.finding, suppressed) for suppressed in report.suppressed),
    ]


def _state(report: Report, suppressed: Suppressed | None) -> dict[str, Any]:
    """Return how a result compares with the baseline, and the suppression of one that does not count.

    Stale entries are not given as results with the state "absent": a host that ignores states would reopen them.
    """
    state: dict[str, Any] = {}
    if report.baseline and (suppressed is None or suppressed.by == "baseline"):
        state["baselineState"] = "unchanged" if suppressed else "new"
    if suppressed:
        justification = visible(why_suppressed(suppressed))
        state["suppressions"] = [{"kind": "external", "status": "accepted", "justification": justification}]
    return state


def _rules(report: Report) -> list[dict[str, Any]]:
    """Return a rule for every code that has a result, in the order of codes; unused rules would only fill the host's list."""
    checks = {check.code: check for check in report.checks}
    rules: dict[str, dict[str, Any]] = {}
    for finding, _ in _findings_with_suppressions(report):
        rules.setdefault(finding.code, _rule(finding, checks.get(finding.code)))
    return [rules[code] for code in sorted(rules)]


def _rule(finding: Finding, check: Check | None) -> dict[str, Any]:
    """Return what a host shows next to a result: the title from the check, the level it can reach, the help."""
    rule: dict[str, Any] = {
        "id": finding.code,
        "name": finding.name,
        "shortDescription": _text(check.title if check else finding.name.replace("_", " ")),
        "defaultConfiguration": {"level": words.level(check.severity if check else finding.severity)},
    }
    if finding.help:
        rule["help"] = _text(finding.help)
    return rule


def _result(finding: Finding, index: int, view: View, seen: Counter[str]) -> dict[str, Any]:
    """Return one result without its message.

    Args:
        finding: What was found.
        index: Place of its rule among the run's rules.
        view: The folder prefixed to file addresses, and the lines of findings that name no file.
        seen: How often each fingerprint has been used; the count distinguishes equal findings.
    """
    mark = _fingerprint(finding)
    seen[mark] += 1
    file, line = view.places.get(place_key(finding), ("", 1)) if finding.file is None else (finding.file, finding.line or 1)
    location: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": _artifact(file, view.base), "region": {"startLine": line}}
    }
    if finding.where:
        location["logicalLocations"] = [{"fullyQualifiedName": visible(finding.where)}]
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": words.level(finding.severity),
        "locations": [location],
        "partialFingerprints": {"ckaudit/v1": f"{mark}:{seen[mark]}"},
    }
    fields = ("severity", "first_step", "last_step", "worst_step", "value", "limit", "unit", "pointer")
    values = {field: getattr(finding, field) for field in fields}
    if properties := {
        field: visible(value) if isinstance(value, str) else value for field, value in values.items() if value is not None
    }:
        result["properties"] = properties
    return result


def _fingerprint(finding: Finding) -> str:
    """Return a hash of what stays the same when numbers, lines and wording change; of the first step only its power of two."""
    octave = finding.first_step and finding.first_step.bit_length()
    # The worst of several places may change with every checkpoint; the first by name does not.
    place = finding.where and min(finding.where, *finding.also) if finding.also else finding.where
    parts = (finding.code, finding.file, finding.pointer, place, octave)
    return sha256(repr(parts).encode()).hexdigest()[:16]


def _artifact(file: str, base: str) -> dict[str, str]:
    """Return the address of a file, or of the audited folder if `file` is empty: relative, unless it lies elsewhere."""
    if not base and _is_outside(file):
        return {"uri": _absolute(file)}
    if _is_outside(base):
        return {"uri": _quoted(file or "./"), "uriBaseId": RUN}
    return {"uri": _quoted((f"{base.rstrip('/')}/" if base else "") + file or "./")}


def _is_outside(path: str) -> bool:
    """Return whether a path leads out of the working folder, so that it has no relative address."""
    return is_uri(path) or Path(path).is_absolute() or path.startswith(os.pardir)


def _absolute(path: str) -> str:
    return quote(path.rstrip("/"), safe=":/@") if is_uri(path) else Path(path).resolve().as_uri()


def _quoted(path: str) -> str:
    # Every colon is quoted too: in the first segment it would be read as a scheme.
    return quote(path, errors="surrogatepass")


def _message(finding: Finding, cause: Diagnosis | None) -> dict[str, Any]:
    """Return the sentence of a finding, with the likeliest cause and the first knob if there is one."""
    details = [f"{label} {text}" for label, text in (("expected", finding.expected), ("found", finding.found)) if text]
    place = f" at {finding.pointer}" if finding.pointer else ""
    sentence = finding.message + place + (f" ({'; '.join(details)})" if details else "")
    if cause:
        sentence += f". {words.likelihood(cause.confidence).capitalize()}: {cause.title.removesuffix('.')}. First: {cause.knob}"
    return {"message": _text(sentence)}


def _text(text: str) -> dict[str, str]:
    """Return a SARIF message; `[words](address)` from a file must not become a link."""
    return {"text": visible(text).replace("](", "] (")}
