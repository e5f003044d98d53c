"""Comparison of the checkpoints of a run: sizes, times, files, parts and steps."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from ckaudit.contract.schema.report import Finding
from ckaudit.contract.violations import ViolationKind
from ckaudit.resume.catalogue import NO_OPTIMIZER, NO_WEIGHTS, PART_MISSING, SHARD_MISSING, SIZE_JUMP, STEP_MISMATCH, TIME_JUMP
from ckaudit.resume.examine import ExaminedCheckpoint
from ckaudit.resume.find import DATA, STEP
from ckaudit.wording import plural

MIN_CHECKPOINTS = 3  # with two it is unknown which one is odd


def checkpoints_of_one_form(checkpoints: Sequence[ExaminedCheckpoint]) -> list[list[ExaminedCheckpoint]]:
    """Return the checkpoints by form, for each form with enough of them for a comparison."""
    groups: dict[tuple[bool, str], list[ExaminedCheckpoint]] = {}
    for examined in checkpoints:
        form = re.sub(r"\d+", "#", Path(examined.checkpoint.name).name)
        groups.setdefault((examined.checkpoint.is_folder, form), []).append(examined)
    return [group for group in groups.values() if len(group) >= MIN_CHECKPOINTS]


def size_jumps(checkpoints: Sequence[ExaminedCheckpoint], *, relative: float = 0.1, min_bytes: int = 10**6) -> Iterator[Finding]:
    """Yield findings for checkpoints whose size differs from that of the others (M63).

    Args:
        checkpoints: All checkpoints.
        relative: Share of the median size that a checkpoint may differ by: tensors do not grow during a run, only the small logs
            beside them do.
        min_bytes: Bytes that it may always differ by.
    """
    for group in checkpoints_of_one_form(checkpoints):
        for examined in group:
            typical = median(other.entry.size for other in group if other is not examined)
            away = examined.entry.size - typical
            if abs(away) > max(relative * typical, min_bytes):
                word = "larger" if away > 0 else "smaller"
                message = (
                    f"has {examined.entry.size:,} bytes, {abs(away) / max(typical, 1):.0%} {word} than the median of the others"
                )
                yield SIZE_JUMP.at(
                    examined.checkpoint.file,
                    message,
                    value=examined.entry.size,
                    limit=int(typical),
                    unit="bytes",
                    first_step=examined.entry.step,
                    last_step=examined.entry.step,
                )


def time_jumps(
    checkpoints: Sequence[ExaminedCheckpoint], *, relative: float = 1.0, min_seconds: float = 30.0
) -> Iterator[Finding]:
    """Yield findings for checkpoints that took longer to write than the others (M62); the limits are those of FILE003.

    Args:
        checkpoints: All checkpoints.
        relative: Permitted excess over the median time, as a share of it.
        min_seconds: Excess in seconds that is always permitted.
    """
    for group in checkpoints_of_one_form([examined for examined in checkpoints if examined.entry.seconds is not None]):
        times = {examined.checkpoint.name: examined.entry.seconds or 0.0 for examined in group}
        for examined in group:
            seconds = times[examined.checkpoint.name]
            typical = median(value for name, value in times.items() if name != examined.checkpoint.name)
            if seconds - typical > max(relative * typical, min_seconds):
                message = f"took at least {seconds:,.0f} s to write, the median of the others {typical:,.0f} s"
                yield TIME_JUMP.at(
                    examined.checkpoint.file,
                    message,
                    value=seconds,
                    limit=typical + max(relative * typical, min_seconds),
                    unit="s",
                    first_step=examined.entry.step,
                    last_step=examined.entry.step,
                )


def missing_files(checkpoints: Sequence[ExaminedCheckpoint]) -> Iterator[Finding]:
    """Yield findings for folders without a file that all others of their form have: the save did not end."""
    for group in checkpoints_of_one_form([examined for examined in checkpoints if examined.checkpoint.is_folder]):
        for examined in group:
            others = [_names(other) for other in group if other is not examined]
            if lost := sorted(set.intersection(*others) - _names(examined)):
                more = f" and {plural(len(lost) - 1, 'other file')}" if len(lost) > 1 else ""
                message = f"lacks {lost[0]}{more}, which all {len(others)} others have"
                yield SHARD_MISSING.at(
                    examined.checkpoint.file, message, first_step=examined.entry.step, last_step=examined.entry.step
                )


def _names(examined: ExaminedCheckpoint) -> set[str]:
    wanted = (
        path.name
        for path in examined.checkpoint.files
        if DATA.match(path.name) or path.name in ("trainer_state.json", ".metadata")
    )
    return {re.sub(r"(step|iter)_?\d+", r"\1#", name) for name in wanted}


def wrong_steps(checkpoints: Sequence[ExaminedCheckpoint]) -> Iterator[Finding]:
    """Yield findings for checkpoints whose name has another step than their content."""
    for examined in checkpoints:
        inside, named = examined.entry.step, examined.checkpoint.step
        if (
            "step" in examined.entry.present
            and named is not None
            and inside is not None
            and inside != named
            and _name_contradicts_step(examined)
        ):
            message = f"is called step {named:,}, and says step {inside:,} inside"
            yield STEP_MISMATCH.at(
                examined.checkpoint.file, message, value=inside, limit=named, unit="steps", first_step=inside, last_step=inside
            )


def _name_contradicts_step(examined: ExaminedCheckpoint, *, tolerance: int = 1) -> bool:
    """Tell whether the step in the name contradicts the content; a difference of one is a count from 0."""
    named, inside = examined.checkpoint.step or 0, examined.entry.step or 0
    return STEP.search(Path(examined.checkpoint.name).name) is not None and abs(named - inside) > tolerance


def missing_parts(checkpoints: Sequence[ExaminedCheckpoint]) -> Iterator[Finding]:
    """Yield findings for parts that a resume needs and checkpoints lack; those that lack the same share one finding."""
    groups: dict[tuple[str, ...], list[ExaminedCheckpoint]] = {}
    for examined in checkpoints:
        if examined.forms and not examined.skipped and examined.entry.absent and examined.entry.ok is not False:
            groups.setdefault(tuple(examined.entry.absent), []).append(examined)
    for absent, group in groups.items():
        for name, kind in (("weights", NO_WEIGHTS), ("optimizer", NO_OPTIMIZER)):
            if name in absent and not _is_export(group[0], absent):
                yield _together(kind, group, f"no {'optimizer state' if name == 'optimizer' else name}")
        rest = [name.replace("_", " ") for name in absent if name not in ("weights", "optimizer") or _is_export(group[0], absent)]
        if rest:
            yield _together(PART_MISSING, group, f"no {', no '.join(rest)}")


def _is_export(examined: ExaminedCheckpoint, absent: Sequence[str]) -> bool:
    """Tell whether a checkpoint is an exported model: only weights, under a name without a step."""
    return examined.checkpoint.step is None and len(absent) >= 5 and "weights" not in absent


def _together(kind: ViolationKind, group: Sequence[ExaminedCheckpoint], what: str) -> Finding:
    steps = [examined.entry.step for examined in group if examined.entry.step is not None]
    others = [examined.checkpoint.name for examined in group[1:]]
    message = f"{plural(len(group), 'checkpoint')}: {what}" if others else f"has {what}"
    return kind.at(
        group[0].checkpoint.file, message, also=others, first_step=min(steps, default=None), last_step=max(steps, default=None)
    )
