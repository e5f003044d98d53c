"""Gate 1: whether the evaluations on both sides of the fall used the same artifacts."""

from collections.abc import Iterator
from itertools import pairwise

from msgspec import UNSET

from ckaudit.audit.coverage.remedies import lines_for
from ckaudit.audit.drop.result import Evidence, Fall
from ckaudit.audit.drop.shift import Limits, over_labels, shift
from ckaudit.metrics.loss import val_loss
from ckaudit.run.run import Labels, Run

NAME = "eval_artifact_hash"


def evidence(run: Run, fall: Fall) -> Iterator[Evidence]:
    """Yield what is known of each artifact: the hash of the last good evaluation against those of the fallen ones."""
    planned = run.manifest.eval_artifact_hashes if run.manifest else UNSET
    told = {} if planned is UNSET else planned
    hashes = run.words(NAME)
    if not hashes:
        also = f", though run.json names that of {', '.join(told)}" if told else ""
        sentence = f"no evaluation logged the hash of an artifact{also}"
        yield Evidence(metric=NAME, said="not_recorded", sentence=sentence, record=lines_for(NAME))
    for label, words in hashes.items():
        yield _compared(label, words, told.get(label), fall)
    yield from _other_code(run, fall)
    yield from _held_out(run, fall)


def _compared(label: str, words: Labels, planned: str | None, fall: Fall) -> Evidence:
    """Compare one artifact on both sides."""
    pairs = list(zip(words.steps, words.values, strict=True))
    good = next(((step, word) for step, word in reversed(pairs) if step <= fall.before), None)
    source = f"at step {good[0]}" if good else "in run.json"
    expected = good[1] if good else planned
    later = [(step, word) for step, word in pairs if step > fall.before]
    if expected is None or not later:
        side = "before" if expected is None else "after"
        sentence = f"{label}: no evaluation {side} the fall logged its hash"
        return Evidence(metric=NAME, label=label, said="too_few", sentence=sentence, record=lines_for(NAME))
    for step, word in later:
        if word != expected:
            sentence = f"{label}: {short(expected)} {source}, {short(word)} at step {step}"
            return Evidence(metric=NAME, label=label, said="changed", sentence=sentence, step=step)
    sentence = f"{label}: {short(expected)} {source}, and the same at step {later[0][0]}"
    return Evidence(metric=NAME, label=label, said="steady", sentence=sentence)


def _other_code(run: Run, fall: Fall) -> Iterator[Evidence]:
    """Yield the word on a resume with other training code in between: no verdict, but where harnesses change."""
    sessions = run.manifest.sessions if run.manifest and run.manifest.sessions is not UNSET else []
    for earlier, later in pairwise(sessions):
        known = earlier.commit is not UNSET and later.commit is not UNSET and later.resumed_from is not UNSET
        if known and earlier.commit != later.commit and fall.before <= int(later.resumed_from or 0) < fall.after:
            sentence = (
                f"the run was resumed at step {later.resumed_from} with code {later.commit}, before it was {earlier.commit}"
            )
            yield Evidence(metric="sessions", said="remark", sentence=sentence, step=int(later.resumed_from or 0))


def _held_out(run: Run, fall: Fall) -> Iterator[Evidence]:
    """Yield the word on the held-out loss: where it does not move with the score, the score itself is to be doubted."""
    loss = val_loss(run)
    found = shift(*over_labels(loss, "mean"), fall.before, fall.after, Limits(share=0.01, way="up"))
    if found:
        moved = f"does not rise with it: {found.before:.4g} before, {found.after:.4g} after"
        if found.changed:
            moved = f"rises too, from {found.before:.4g} to {found.after:.4g}"
        elif found.after > found.before:
            moved = f"goes on as before, from {found.before:.4g} to {found.after:.4g}; expected: at most {found.limit:.4g}"
        yield Evidence(
            metric=loss.name, said="remark", sentence=f"the held-out loss {moved}", before=found.before, after=found.after
        )


def short(word: str, *, letters: int = 8) -> str:
    """Return the beginning of a hash, with what it is a hash of.

    >>> short("sha256:0a192065f5a480e6")
    'sha256:0a192065'
    """
    kind, colon, digits = word.rpartition(":")
    return f"{kind}{colon}{digits[:letters]}"
