"""The files of a run compared with each other: steps, sessions and ranks, numbers written twice, and gaps of `run.json`."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import isclose
from types import MappingProxyType
from typing import Any

from msgspec import UNSET

from ckaudit.contract.cadence import DEFAULT_CADENCE, is_due, ordinal
from ckaudit.contract.io.folder import RunFiles
from ckaudit.contract.schema.manifest import Cadence
from ckaudit.contract.schema.numbers import Number, ignoring_float_errors
from ckaudit.contract.schema.report import Finding
from ckaudit.validate.catalogue import (
    CADENCE_GAP,
    CLOCK_BACK,
    CONTRADICTED_CLAIM,
    DUPLICATE_STEP,
    GRAD_NORM_MISMATCH,
    INCOMPLETE,
    LONELY_RANK,
    LOSS_MISMATCH,
    MIXED_VERSIONS,
    RANK_RANGE,
    SESSION_BACK,
    UNLISTED_SESSION,
)
from ckaudit.validate.file_facts import CheckpointFacts, RunFacts

DERIVED = {
    "grad_clip_rate": ("clip_coefficient", "grad_global_norm"),
    "grad_noise_scale": ("grad_noise_trace", "grad_noise_signal"),
    "lr_phase": (),
    "mfu": ("tokens_seen",),
    "nan_inf_events": ("train_loss_raw", "val_loss", "grad_global_norm"),
    "overflow_rate": ("skipped_updates", "loss_scale"),
    "step_time": (),
    "steps_seen": ("skipped_updates",),
    "tokens_per_sec": ("tokens_seen",),
    "tokens_per_update": ("tokens_seen",),
    "train_loss_ema": ("train_loss_raw",),
    "train_ppl": ("train_loss_raw", "train_loss_ema"),
    "train_val_gap": ("val_loss",),
    "val_ppl": ("val_loss",),
}
"""Names that the rest of a log can judge, each with the names of which one is needed for that. The list is spelled out so that
numpy is not loaded, and a run without them is not read twice."""

# Names that a run with evaluations records, and those based on generated text.
EVALUATED = ("val_loss", "val_ppl", "slice_val_loss", "microbench_score", "rtp_toxicity_prob", "memorization_rate")

GENERATED = ("microbench_score", "rtp_toxicity_prob", "memorization_rate")

# Each fact with the keyword argument that records it.
ALWAYS_ASKED = {
    "commit": ("the code's commit", 'commit="..."'),
    "lock_hash": ("the packages", 'lock_hash="sha256:..."'),
    "model": ("the model's configuration", "model={...}"),
    "data_manifest": ("the data", 'data_manifest="data.json"'),
}

CANARY_STEPS = 2000  # canary runs take 200 to 2,000 steps (PRB-2): shorter runs are simply repeated


# The checkpoints of a run as a sequence: one file per step, none missing, clock and sessions rising.
def mixed_versions(run: RunFacts) -> Iterator[Finding]:
    """Files of an unknown version among files of a known one."""
    readable = len(run.checkpoints)
    for version, files in sorted(run.versions.items()):
        if readable or len(run.versions) > 1:
            message = f"{len(files)} files say {version}, {readable} say ck.analysis.v1"
            yield MIXED_VERSIONS.at(files[0], message, pointer="/schema_version", found=version, also=files[1:])


def duplicate_steps(run: RunFacts) -> Iterator[Finding]:
    """Two files of one step, or of one step and rank."""
    for (step, rank), files in groupby(sorted(run.checkpoints, key=_place), key=_place):
        first, *others = files
        of_rank = f" of rank {rank}" if rank >= 0 else ""
        for other in others:
            message = f"step {step}{of_rank} stands in {first.shown} too"
            yield DUPLICATE_STEP.at(other.shown, message, first_step=step, pointer="/step", also=[first.shown])


def _place(facts: CheckpointFacts) -> tuple[int, int]:
    return facts.step, -1 if facts.rank is None else facts.rank


def cadence_gaps(run: RunFacts) -> Iterator[Finding]:
    """Due steps between the first and the last recorded one that have no checkpoint.

    A run without a declared cadence is compared with the default one, and gets one finding.
    """
    declared = run.manifest is not None and run.manifest.cadence is not UNSET
    cadence = run.manifest.cadence if declared and run.manifest else DEFAULT_CADENCE
    assert cadence is not UNSET
    gaps = [
        _gap(older, newer, shown, missing, cadence)
        for (older, _), (newer, shown) in pairwise(run.written_steps().items())
        if (missing := ordinal(newer - 1, cadence) - ordinal(older, cadence)) > 0
    ]
    if declared or not gaps:
        yield from gaps
        return
    due = sum(gap.points or 0 for gap in gaps)
    first, last = gaps[0].first_step, gaps[-1].last_step
    message = f"{due} steps of the default cadence are missing, the first is {first}; run.json declares no other"
    yield CADENCE_GAP.at(gaps[0].file, message, first_step=first, last_step=last, points=due)


def _gap(older: int, newer: int, shown: str, missing: int, cadence: Sequence[Cadence]) -> Finding:
    due = _next_due(older, cadence)
    what = f"{missing} due steps are" if missing > 1 else "1 due step is"
    message = f"{what} missing between steps {older} and {newer}, the first is {due}"
    return CADENCE_GAP.at(shown, message, first_step=due, last_step=newer, points=missing)


def _next_due(step: int, cadence: Sequence[Cadence]) -> int:
    """Return the first due step after `step`; each stretch is visited once, however long it is."""
    for stretch in cadence:
        if stretch.every and (stretch.until is None or step < stretch.until):
            due = (step // stretch.every + 1) * stretch.every
            if is_due(due, cadence) and (stretch.until is None or due <= stretch.until):
                return due
            step = max(step, stretch.until or step)
    return step


def sessions_back(run: RunFacts) -> Iterator[Finding]:
    """A checkpoint of a lower session at a higher step: history that was not renamed."""
    for older, newer in pairwise(facts for facts in run.merged() if facts.session is not None):
        if older.session is not None and newer.session is not None and newer.session < older.session:
            message = f"step {newer.step} is of session {newer.session}, but step {older.step} of session {older.session}"
            yield SESSION_BACK.at(newer.shown, message, first_step=newer.step, pointer="/session")


def clock_back(run: RunFacts, *, tolerance: float = 1.0) -> Iterator[Finding]:
    """A later step with an earlier time, in one session.

    Args:
        run: The run.
        tolerance: Seconds by which a corrected clock may go back; NTP slews smaller errors instead of jumping.
    """
    for older, newer in pairwise(run.merged()):
        if older.session != newer.session or isinstance(older.time, str) or isinstance(newer.time, str):
            continue
        if older.time is not None and newer.time is not None and newer.time < older.time - tolerance:
            message = f"the clock goes back by {older.time - newer.time:,.3g} s from step {older.step} to step {newer.step}"
            yield CLOCK_BACK.at(newer.shown, message, first_step=newer.step, pointer="/time")


# Sessions and ranks of files compared with each other and with run.json.
def lonely_ranks(run: RunFacts) -> Iterator[Finding]:
    """Per-rank files of a step without a merged checkpoint, one finding per step."""
    merged = run.written_steps()
    facts = [
        checkpoint
        for checkpoint in run.checkpoints
        if checkpoint.rank is not None and checkpoint.only_rank_facts and checkpoint.step not in merged
    ]
    for step, files in groupby(facts, key=lambda fact: fact.step):
        first, *others = files
        message = f"step {step} has facts of {1 + len(others)} ranks, but no merged checkpoint"
        yield LONELY_RANK.at(first.shown, message, first_step=step, also=[other.shown for other in others])


def ranks_out_of_range(run: RunFacts) -> Iterator[Finding]:
    """A rank that is not below the world size of its session."""
    for checkpoint in run.checkpoints:
        size = world_size(run, checkpoint)
        if checkpoint.rank is not None and size is not None and checkpoint.rank >= size:
            message = f"rank {checkpoint.rank} of a world of {size}"
            place = {"expected": f"at most {size - 1}", "found": str(checkpoint.rank), "first_step": checkpoint.step}
            yield RANK_RANGE.at(checkpoint.shown, message, pointer="/rank", **place)


def world_size(run: RunFacts, facts: CheckpointFacts) -> int | None:
    """Return the number of ranks in the session of a checkpoint; None if run.json does not record it."""
    if run.manifest is None:
        return None
    sessions = run.manifest.sessions or []
    session = facts.session or 0
    sizes = [sessions[session].world_size] if session < len(sessions) else []
    sizes.append(run.manifest.world_size)
    return next((size for size in sizes if size is not UNSET), None)


def unlisted_sessions(run: RunFacts) -> Iterator[Finding]:
    """A session that wrote a checkpoint or a line, but has no entry in run.json."""
    if run.manifest is None or run.manifest.sessions is UNSET:
        return
    listed = len(run.manifest.sessions)
    wrote = [(checkpoint.session, checkpoint.shown) for checkpoint in run.checkpoints if checkpoint.session is not None]
    wrote += [(session, log.shown) for log in run.logs for session in sorted(log.sessions)]
    reported: set[int] = set()
    for session, shown in wrote:
        if session >= listed and session not in reported:
            reported.add(session)
            message = f"session {session} wrote {shown}, but run.json lists {listed} sessions, from 0"
            yield UNLISTED_SESSION.at(run.manifest_file, message, pointer="/sessions", found=str(session))


# Numbers written twice: a checkpoint's loss and gradient norm compared with the log line of the same step.
def disagreements(run: RunFacts, *, tolerance: float = 1e-3) -> Iterator[Finding]:
    """Yield checkpoints that contradict the log line of their step.

    Args:
        run: The run.
        tolerance: Largest relative difference by rounding: four digits in either file.
    """
    for facts in run.merged():
        for kind, name, value in (
            (LOSS_MISMATCH, "train_loss_raw", facts.loss),
            (GRAD_NORM_MISMATCH, "grad_global_norm", facts.grad_norm),
        ):
            if value is not None:
                line = line_of(run, facts, name)
                if line is not None and not agree(value, line[0], tolerance=tolerance):
                    logged, number, log = line
                    message = f"{name} of step {facts.step} is {value} here, but {logged} in line {number} of {log}"
                    pointer = "/loss" if name == "train_loss_raw" else f"/scalars/{name}"
                    yield kind.at(
                        facts.shown, message, first_step=facts.step, pointer=pointer, expected=str(logged), found=str(value)
                    )


def line_of(run: RunFacts, facts: CheckpointFacts, name: str) -> tuple[Number, int, str] | None:
    """Return value, line and log of a name at a checkpoint's step, in its session, or in the last one if it names none."""
    sessions = (
        [facts.session] if facts.session is not None else sorted({s for log in run.logs for s in log.sessions}, reverse=True)
    )
    for session in sessions:
        for log in reversed(run.logs):
            if value_and_line := log.values.get((facts.step, session, name)):
                return *value_and_line, log.shown
    return None


def agree(one: Number, other: Number, *, tolerance: float) -> bool:
    """Tell whether two numbers can be the same number, rounded differently.

    >>> agree(2.3478, 2.3, tolerance=1e-3), agree(2.3478, 2.4, tolerance=1e-3), agree("NaN", "NaN", tolerance=1e-3)
    (True, False, True)
    """
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    if isclose(one, other, rel_tol=tolerance):
        return True
    digits = max(0, min(_decimals(one), _decimals(other)))
    return abs(one - other) <= 0.5000001 * 10.0**-digits


def _decimals(value: float) -> int:
    from decimal import Decimal

    exponent = Decimal(repr(float(value))).as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0


# Logged numbers compared with their recomputation from others in the log.
def says_derived(run: RunFacts) -> bool:
    """Tell whether a log of the run holds a number that can be recomputed."""
    names = {name.partition("/")[0] for log in run.logs for name in log.names}
    return any(name in names and (not inputs or names.intersection(inputs)) for name, inputs in DERIVED.items())


def contradicted_claims(run: RunFacts, units: Mapping[str, str] = MappingProxyType({})) -> Iterator[Finding]:
    """Yield logged numbers outside the range that the log's own raw numbers allow; checkpoints are not read again.

    Args:
        run: The facts of the run.
        units: The user's unit of a share by name.
    """
    if not says_derived(run):
        return
    from ckaudit.metrics.contradictions import claimed_value, nearest_allowed_value
    from ckaudit.rules.files.contradicted_claim import contradicted_claim
    from ckaudit.rules.rule import Hit
    from ckaudit.run.read import read_run
    from ckaudit.run.units import in_catalogue_units

    @ignoring_float_errors
    def hits() -> list[Any]:
        folder = RunFiles(run.folder.root, scalars=run.folder.scalars, manifest=run.folder.manifest)
        log = in_catalogue_units(read_run(folder, reads=()), units)
        return [*contradicted_claim.function(claimed_value(log), nearest_allowed_value(log))]

    shown = run.logs[0].shown
    for hit in hits():
        if isinstance(hit, Hit):
            message = hit.message.format(where=hit.where, value=hit.value, limit=hit.limit)
            yield CONTRADICTED_CLAIM.at(
                shown,
                message,
                where=hit.where,
                first_step=hit.first,
                last_step=hit.last,
                worst_step=hit.worst,
                value=hit.value,
                limit=hit.limit,
                points=hit.points,
            )


# Facts needed to repeat a run, or to trust a comparison with it, that `run.json` lacks (MAN-1 to MAN-5).
def is_worth_repeating(run: RunFacts) -> bool:
    """Tell whether ckaudit's recorder wrote the run, and it is longer than a trial.

    Facts that an importer cannot know are no gap of the run. The planned length counts, because at the start the facts can still
    be added.
    """
    manifest = run.manifest
    if not (run.whole and manifest and manifest.sessions and manifest.source and manifest.source.startswith("ckaudit ")):
        return False
    steps = [checkpoint.step for checkpoint in run.checkpoints]
    return max([*steps, manifest.planned_steps or 0]) > CANARY_STEPS


def manifest_gaps(run: RunFacts) -> Iterator[Finding]:
    """Missing facts, each with the recorder's keyword for it.

    A tokenizer is asked for if there is a vocabulary, evaluation artifacts if there are evaluations, and decoding parameters if
    text is generated.
    """
    if not is_worth_repeating(run):
        return
    missing = [f"{what} ({call})" for name, (what, call) in _asked(run).items() if getattr(run.manifest, name) is UNSET]
    if missing:
        message = f"run.json lacks {', '.join(missing)}; the keywords are those of Recorder and Writer"
        yield INCOMPLETE.at(run.manifest_file, message)


def _asked(run: RunFacts) -> dict[str, tuple[str, str]]:
    asked = dict(ALWAYS_ASKED)
    if run.manifest is not None and run.manifest.vocabulary is not UNSET:
        asked["tokenizer_hash"] = ("the tokenizer", "tokenizer=...")
    if any(_is_recorded(run, name) for name in EVALUATED):
        asked["eval_artifact_hashes"] = ("the evaluation artifacts", "eval_artifacts={...}")
    if any(_is_recorded(run, name) for name in GENERATED):
        asked["decoding"] = ("how evaluations decode", "decoding={...}")
    return asked


def _is_recorded(run: RunFacts, name: str) -> bool:
    path = f"scalars.{name}"
    return any(recorded == path or recorded.startswith(f"{path}/") for recorded in run.recorded)
