"""The audit of one source of runs, reduced to the row of a fleet."""

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any

import msgspec
import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from ckaudit.audit.engine import ExplainedRun, broken_plugins, explain_run, open_judged, triage_reads
from ckaudit.audit.figures import state
from ckaudit.audit.headline import headline
from ckaudit.audit.load_run import is_ours, open_runs
from ckaudit.audit.vital_checks import VITAL, judged, vital_checks
from ckaudit.contract.io.folder import shown_name
from ckaudit.contract.schema.fleet import Curve, FleetFinding, FleetRun, Status, VitalState
from ckaudit.contract.schema.manifest import Manifest
from ckaudit.contract.schema.numbers import encode_float, ignoring_float_errors
from ckaudit.contract.schema.report import SEVERITIES, Diagnosis, Finding, VitalCheck, gravest
from ckaudit.errors import CkauditError
from ckaudit.fleet.find_runs import holds_any_run
from ckaudit.fleet.like import gate_with_siblings
from ckaudit.fleet.source import RunSource
from ckaudit.metrics.loss import train_loss_raw
from ckaudit.remote.addresses import with_addresses
from ckaudit.remote.mirror import local_copy
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Steps

MAX_FINDINGS = 50
CURVE_POINTS = 120
MAX_PROBLEM = 500


def audit_run(source: RunSource) -> list[FleetRun]:
    """Audit every run of a source, and return a row for each; a run that cannot be audited has a row with the reason.

    Only what a pattern matched by its name may have no row: if no run is known in it, as in a text of another kind.

    It raises nothing and writes nothing, so any engine can call it in any process, in any order, and repeatedly.
    """
    rows, started = list[FleetRun](), time.perf_counter()
    try:
        for name, run in _runs(source):
            rows.append(_row(run, _unlike(f"{source.name}#{shown_name(name)}" if name else source.name, rows), source))
    except CkauditError as error:
        rows.append(_failed(source, "unreadable", f"{error}. {error.hint}" if error.hint else str(error)))
    except ModuleNotFoundError as error:  # the client of a storage is missing; the error names the command that installs it
        rows.append(_failed(source, "unreadable", str(error)))
    except Exception as error:  # noqa: BLE001  one bad run must not cost the verdict of the others
        rows.append(failed(source, f"{type(error).__name__}: {error}"))
    seconds = (time.perf_counter() - started) / max(1, len(rows))
    return [with_addresses(replace(row, seconds=seconds, written=source.written)) for row in rows]


def failed(source: RunSource, problem: str) -> FleetRun:
    """Return the row of a source on which the auditor itself failed."""
    return _failed(source, "error", problem)


def _row(run: Run, name: str, source: RunSource) -> FleetRun:
    try:
        row = row_of(run, name, source)
        msgspec.json.encode(row)  # fails for invalid text, which would otherwise fail when the row is written
    except Exception as error:  # noqa: BLE001  as above, of the other runs of the same source
        row = failed(source, f"{type(error).__name__}: {error}")
        return replace(row, run=name, source="" if name == source.name else source.name)
    return row


def _unlike(name: str, rows: Sequence[FleetRun]) -> str:
    """Return a name that no row has yet."""
    taken = {row.run for row in rows}
    return name if name not in taken else next(new for number in count(2) if (new := f"{name}-{number}") not in taken)


@ignoring_float_errors
def row_of(run: Run, name: str, source: RunSource) -> FleetRun:
    """Return the row of one run in memory."""
    criteria = gate_with_siblings(source)
    explained = explain_run(run, criteria)
    run, findings = explained.run, explained.findings
    held = criteria.compare_with_siblings(run)
    checks = [*explained.applied.checks, *broken_plugins()]
    vital = vital_checks(run, checks)
    top = next(iter(findings), None)
    row = FleetRun(
        run=name,
        source="" if name == source.name else source.name,
        status="audited",
        severity=gravest(finding.severity for finding in findings),
        verdict=_verdict(explained, vital),
        judged=judged(vital, checks),
        first_step=top.first_step if top else None,
        where=(top.group or top.where) if top else None,
        last_step=run.last_step,
        vital=vital_states(vital, findings),
        findings=[_short(finding) for finding in findings[:MAX_FINDINGS]],
        state=state(run),
        loss=_curve(run),
        facts=facts_of(run),
        siblings=sum(sibling.counts for sibling in held.siblings) if held else 0,
        files=run.files,
        fingerprint=source.fingerprint,
        audited=time.time(),
    )
    return _with_cause(row, explained.diagnoses[0], top) if explained.diagnoses else row


def _with_cause(row: FleetRun, first: Diagnosis, top: Finding | None) -> FleetRun:
    """Return a row with its first cause, and with that cause's first step and place if it explains the gravest finding."""
    row = replace(row, cause=first.cause, cause_title=first.title, confidence=first.confidence, knob=first.knob)
    if top is None or top.code not in first.explains or first.first_step is None:
        return row
    return replace(row, first_step=first.first_step, where=first.group or first.where)


def vital_states(vital: Sequence[VitalCheck], findings: Sequence[Finding]) -> dict[str, VitalState]:
    """Return the state of each vital check by name: its gravest finding, "well", or the reason why it was not judged."""
    rules = {check.name: check.rules for check in VITAL}
    states: dict[str, VitalState] = {}
    for check in vital:
        if check.outcome != "judged":
            states[check.name] = check.outcome
            continue
        severities = [finding.severity for finding in findings if finding.code in rules[check.name]]
        states[check.name] = min(severities, key=SEVERITIES.index, default="well")
    return states


def _runs(source: RunSource) -> Iterator[tuple[str, Run]]:
    path, reads = local_copy(source.path), _reads()
    if source.is_match and not holds_any_run(path):
        return
    if not source.import_options.run and path.exists() and is_ours(path):
        yield "", open_judged(path, reads=reads, import_options=source.import_options)
        return
    yield from open_runs(path, reads=reads, import_options=source.import_options)


@cache
def _reads() -> frozenset[str]:
    """Return the fields of checkpoints that the audit reads; they are the same for every run."""
    return triage_reads()


def _verdict(explained: ExplainedRun, vital: Sequence[VitalCheck]) -> str:
    checks, hidden = [*explained.applied.checks, *broken_plugins()], len(explained.applied.suppressed)
    return headline(checks, explained.diagnoses, explained.findings, explained.run, vital=vital, hidden=hidden)


def _short(finding: Finding) -> FleetFinding:
    return FleetFinding(
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        message=finding.message,
        where=finding.group or finding.where,
        first_step=finding.first_step,
        last_step=finding.last_step,
    )


def _curve(run: Run) -> Curve | None:
    series = train_loss_raw(run)
    if not series:
        return None
    rows = series.recorded_rows()
    values = rows.values[:, 0]
    chosen = thinned(values, CURVE_POINTS)
    return Curve(steps=rows.steps[chosen].tolist(), values=[encode_float(value) for value in values[chosen].tolist()])


def thinned(values: Floats, points: int) -> Steps:
    """Return the indices of at most `points` values (N,) in order: the first, the last, and both extremes of equal segments.

    NaN counts as an extreme of its segment.
    """
    count = max(1, (points - 2) // 2)
    if len(values) <= points:
        return np.arange(len(values))
    size = -(-len(values) // count)
    padded = np.concatenate([values, np.repeat(values[-1:], size * count - len(values))]).reshape(count, size)
    starts = np.arange(count) * size
    low = np.argmin(padded, axis=1) + starts  # for NumPy, NaN is both the minimum and the maximum
    high = np.argmax(padded, axis=1) + starts
    chosen: Steps = np.unique(np.minimum(np.concatenate([low, high, [0, len(values) - 1]]), len(values) - 1))
    return chosen


def _failed(source: RunSource, status: Status, problem: str) -> FleetRun:
    return FleetRun(
        run=source.name,
        status=status,
        problem=problem.replace(source.path, source.name)[:MAX_PROBLEM],
        verdict="Could not be audited" if status == "unreadable" else "The auditor failed",
        fingerprint=source.fingerprint,
        audited=time.time(),
    )


# Facts of a run from run.json, flat and as text, for grouping runs and for searching common causes.
MAX_FACTS = 400
MAX_LENGTH = 200
BATCHES = 8
"""Batches whose hashes identify an order of the data; a run that ended earlier has no order, or it would be unique."""
PARTS = ("config", "model", "environment", "data_manifest")
"""Parts of run.json that may have any size."""
NODES = ("node", "host", "hostname", "nodename")
DEVICES = ("device", "gpu", "gpu_uuid", "accelerator")


def facts_of(run: Run) -> dict[str, str]:
    """Return the facts of a run besides its numbers; each value is cut off after 200 characters."""
    manifest = run.manifest
    facts = dict(_order(run))
    if manifest is not None:
        facts |= dict(_named(manifest))
        for prefix in PARTS:
            part = getattr(manifest, prefix)
            facts |= {} if part is UNSET else {f"{prefix}.{name}": value for name, value in flattened(part)}
        facts |= dict(_place(manifest, facts))
    kept = sorted(facts, key=lambda name: name.startswith(PARTS))[:MAX_FACTS]  # of a huge configuration the rest is left out
    return {name: facts[name] for name in sorted(kept)}


def flattened(value: Any, prefix: str = "", *, depth: int = 12) -> Iterator[tuple[str, str]]:
    """Yield the leaves of nested dictionaries by dotted path; a list is one leaf, and so is a value that is nested too deep.

    >>> dict(flattened({"optimizer": {"lr": 0.01}, "betas": [0.9, 0.99], "seed": None}))
    {'optimizer.lr': '0.01', 'betas': '[0.9, 0.99]', 'seed': 'null'}
    """
    if not isinstance(value, dict) or not depth:
        yield prefix, as_text(value)
        return
    for key, inner in value.items():
        yield from flattened(inner, f"{prefix}.{key}" if prefix else str(key), depth=depth - 1)


def as_text(value: Any) -> str:
    """Return a value as text: a string unchanged, anything else as JSON."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_LENGTH else f"{text[: MAX_LENGTH - 3]}..."


def _named(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for name in ("name", "source", "trainer", "seed", "parameters", "world_size", "tokenizer_hash", "lock_hash"):
        value = getattr(manifest, name)
        if value is not UNSET:
            yield name, as_text(value)
    sessions = manifest.sessions or []
    commits = [manifest.commit, *(session.commit for session in sessions)]
    if commit := next((commit for commit in commits if commit is not UNSET), None):
        yield "git.commit", as_text(commit)
    if sessions:
        yield "sessions", str(len(sessions))
        if sessions[0].start is not UNSET:
            yield "start", as_text(sessions[0].start)


def _place(manifest: Manifest, facts: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the nodes and devices of a run, from its sessions, its environment or its configuration."""
    for fact, field, names in (("node", "node", NODES), ("device", "accelerator", DEVICES)):
        values = (getattr(session, field) for session in manifest.sessions or ())
        known = list(dict.fromkeys(value for value in values if value is not UNSET))
        keys = (f"{prefix}.{name}" for name in names for prefix in ("environment", "config"))
        if value := ", ".join(known) or next((facts[key] for key in keys if key in facts), None):
            yield fact, as_text(value)
        elif fact == "device" and manifest.tensors is not UNSET:
            devices = {tensor.device for tensor in manifest.tensors.values() if tensor.device is not UNSET}
            if devices:
                yield fact, as_text(", ".join(sorted(devices)))


def _order(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the fact that identifies the order of the data: the hashes of the first batches, if recorded."""
    for name in ("input_hash", "batch_id"):
        labels = run.texts.get(name)
        if labels is not None and len(labels.values) >= BATCHES:
            first = "\n".join(f"{step} {word}" for step, word in zip(labels.steps[:BATCHES], labels.values, strict=False))
            yield "data_order", hashlib.blake2b(first.encode(errors="replace"), digest_size=8).hexdigest()
            return
