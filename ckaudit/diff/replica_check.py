"""Whether all ranks hold the same parameters: the first that drifts, where, and which came back (D1.6 across ranks)."""

from collections import Counter
from pathlib import Path

import numpy as np

from ckaudit.audit.load_run import open_run
from ckaudit.contract.schema.diff import Answer, Departure, Noise, Pair, Word
from ckaudit.contract.schema.numbers import takes_any_numbers
from ckaudit.material.counts import plural
from ckaudit.metrics.words import replica_agreement
from ckaudit.run.run import Run
from ckaudit.run.series import Series

TITLE = "Do all ranks hold the same parameters?"
NOISE = Noise(source="identical", message="replicas hold the same bytes: nothing is put down to chance")


@takes_any_numbers
def replicas(run: Path) -> Pair:
    """Compare the hashes of the parameters that every rank wrote.

    Raises:
        UnreadableError: Where there is no run.
    """
    return replicas_pair(open_run(run, reads=replica_agreement.paths))


def replicas_pair(run: Run) -> Pair:
    """Compare the hashes of a run in memory; it stands on both sides."""
    hashes = run.value("rank_facts.parameter_hash")
    rows = np.flatnonzero(hashes.recorded.sum(axis=1) > 1) if hashes.labels else np.empty(0, np.int64)
    if not len(rows):
        word: Word = "not_recorded"
        message = "no step has the parameter hashes of two ranks: every rank needs a recorder, and writes a file of its own"
        return _made(run, word, message, [], [])
    drifted = [departure for column in range(len(hashes.labels)) if (departure := _drift(hashes, column, rows)) is not None]
    drifted.sort(key=lambda departure: departure.step)
    count = f"{len(hashes.labels)} ranks at {plural(len(rows), 'checkpoint')}"
    if not drifted:
        return _made(run, "same", f"all {count} hold the same parameters", [], [])
    answers = [
        Answer(
            question=f"replicas@{departure.where}",
            title=f"Does {departure.where} hold what the others do?",
            word="different",
            message=departure.message,
        )
        for departure in drifted
    ]
    return _made(run, "different", f"of {count}, {plural(len(drifted), 'rank')} drifted: {drifted[0].message}", drifted, answers)


def _drift(hashes: Series, column: int, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> Departure | None:
    """Return where a rank first holds something else than the commonest, and whether it came back; None where it never does."""
    # Of two hashes as common, that of the lowest rank counts.
    commonest = {int(row): _counts(hashes, int(row))[0][0] for row in rows if hashes.recorded[row, column]}
    alone = [row for row, common in commonest.items() if hashes.values[row, column] != common]
    if not alone:
        return None
    step, rank = int(hashes.steps[alone[0]]), hashes.labels[column]
    back = next((int(hashes.steps[row]) for row in rows if row > alone[-1] and hashes.recorded[row, column]), None)
    agreed = [int(hashes.steps[row]) for row in rows if row < alone[0]]
    since = f", after agreeing at step {agreed[-1]}" if agreed else ", from the first checkpoint on"
    later = f"; it agrees again at step {back}" if back is not None else "; it did not come back"
    counts = _counts(hashes, alone[0])
    tie = " (as many ranks hold the one as the other)" if (len(counts) > 1 and counts[0][1] == counts[1][1]) else ""
    message = f"{rank} holds other parameters at step {step}{since}{later}{tie}"
    return Departure(statistic="parameter_hash", where=rank, step=step, message=message)


def _counts(hashes: Series, row: int) -> list[tuple[float, int]]:
    return Counter(hashes.values[row, hashes.recorded[row]].tolist()).most_common()


def _made(run: Run, word: Word, message: str, drifted: list[Departure], answers: list[Answer]) -> Pair:
    whole = Answer(question="replicas", title=TITLE, word=word, message=message)
    return Pair(
        left=run.name,
        right=run.name,
        word=word,
        verdict=message,
        noise=NOISE,
        answers=[whole, *answers],
        parting=drifted[0] if drifted else None,
        propagation=drifted,
    )
