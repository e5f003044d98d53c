"""Whether all ranks hold the same parameters and read their own batches: the first rank that drifts, and whether it recovers."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ckaudit.audit.load_run import open_run
from ckaudit.contract.schema.diff import Answer, Departure, Noise, Pair, Word
from ckaudit.contract.schema.numbers import ignoring_float_errors
from ckaudit.metrics.words import replica_agreement
from ckaudit.run.run import Run
from ckaudit.run.series import Series, Steps
from ckaudit.wording import plural

TITLE = "Do all ranks hold the same parameters?"
NOISE = Noise(source="identical", message="replicas hold the same bytes: nothing is put down to chance")


DATA = "rank_facts.data_hash"


@ignoring_float_errors
def replicas(run: Path) -> Pair:
    """Compare the hashes of parameters and batches that every rank wrote.

    Raises:
        UnreadableError: If there is no run.
    """
    return replicas_pair(open_run(run, reads=replica_agreement.paths | {DATA}))


def replicas_pair(run: Run) -> Pair:
    """Compare the hashes of a run in memory; the run is both sides of the pair."""
    hashes = run.value("rank_facts.parameter_hash")
    rows = _shared_rows(hashes)
    if not len(rows):
        word: Word = "not_recorded"
        message = "no step has the parameter hashes of two ranks: every rank needs a recorder, and writes a file of its own"
        return _as_pair(run, word, message, [], [])
    drifted = [departure for column in range(len(hashes.labels)) if (departure := _drift(hashes, column, rows)) is not None]
    drifted.sort(key=lambda departure: departure.step)
    doubled = list(_readers_of_one_batch(run.value(DATA)))
    notes = [] if len(_shared_rows(run.value(DATA))) else [UNKNOWN_BATCHES]
    count = f"{len(hashes.labels)} ranks at {plural(len(rows), 'checkpoint')}"
    if not drifted and not doubled:
        return _as_pair(run, "same", f"all {count} hold the same parameters", [], [], notes)
    answers = [
        Answer(
            question=f"replicas@{departure.where}",
            title=f"Does {departure.where} {'read batches of its own' if departure in doubled else 'hold what the others do'}?",
            word="different",
            message=departure.message,
        )
        for departure in (*drifted, *doubled)
    ]
    drift = f"of {count}, {plural(len(drifted), 'rank')} drifted: {drifted[0].message}" if drifted else f"all {count} agree"
    verdict = "; ".join([drift, *(departure.message for departure in doubled[:1])])
    return _as_pair(run, "different", verdict, [*drifted, *doubled], answers, notes)


UNKNOWN_BATCHES = (
    "which batches the ranks read is not recorded by two of them: hand the batch to the recorder, as in "
    "recorder.step(loss, batch=batch)"
)


def _shared_rows(hashes: Series) -> Steps:
    """Return the rows in which two or more ranks wrote a hash."""
    return np.flatnonzero(hashes.recorded.sum(axis=1) > 1) if hashes.labels else np.empty(0, np.int64)


def _readers_of_one_batch(hashes: Series, *, min_steps: int = 2) -> Iterator[Departure]:
    """Yield each rank that read the batch of a lower rank at every step that both recorded.

    Args:
        hashes: Hashes of the batches, shape (T, R).
        min_steps: Minimum number of common steps; a single batch may occur twice by chance if rows are drawn with replacement.
    """
    for column, rank in enumerate(hashes.labels):
        for before in range(column):
            rows = np.flatnonzero(hashes.recorded[:, column] & hashes.recorded[:, before])
            if len(rows) >= min_steps and (hashes.values[rows, column] == hashes.values[rows, before]).all():
                message = (
                    f"{rank} read the same batches as {hashes.labels[before]} at all {len(rows)} checkpoints: data-parallel "
                    "ranks need a part each (torch's DistributedSampler); it is right only where tensors or stages are split"
                )
                yield Departure(statistic="data_hash", where=rank, step=int(hashes.steps[rows[0]]), message=message)
                break


def _drift(hashes: Series, column: int, rows: Steps) -> Departure | None:
    """Return where a rank first differs from the most common hash, and whether it recovers; None if it never differs."""
    # Of two equally common hashes, that of the lowest rank counts.
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


def _as_pair(
    run: Run, word: Word, message: str, drifted: list[Departure], answers: list[Answer], notes: Sequence[str] = ()
) -> Pair:
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
        notes=[*notes],
    )
