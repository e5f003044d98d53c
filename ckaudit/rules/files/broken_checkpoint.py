"""FILE002: a checkpoint of the training was not written whole."""

from collections.abc import Iterator

import numpy as np
from msgspec import UNSET

from ckaudit.contract.schema.manifest import Manifest, Session
from ckaudit.metrics.observability import checkpoint_ok, checkpoint_written
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("FILE002", severity="sev0", needs=[checkpoint_ok], wants=[checkpoint_written, FACTS], unit="1", memory=1)
def broken_checkpoint(
    whole: Series, read: Series | None, facts: Manifest | None, *, min_health: float = 1.0
) -> Iterator[Hit | Skip]:
    """A checkpoint of the training was not written whole.

    ## What it checks
    What the trainer says of its own checkpoints (M61): a checkpoint with a health below `min_health` is sev0 (SEV0-2). A session
    of the recorder that could not write all of its files is sev2. A session that wrote them all, but could not look at a part of
    the training, is a note.
    ## Why it matters
    The last good checkpoint must be protected before the next one takes its place: a resume from a broken one is lost time.
    ## False alarms
    An analysis checkpoint that cannot be read is no checkpoint of the training and is left out here: reading it reports that by
    itself.
    """
    mine = whole.values < min_health
    if read is not None:
        mine &= ~np.isin(whole.steps, read.steps[(read.values < min_health).any(axis=1)])[:, None]
    for span in spans(whole, mine):
        yield Hit.over(
            span,
            "sev0",
            "a checkpoint of the training is not whole: protect the last good one",
            badness=-whole.values,
            value=whole.values,
            limit=min_health,
        )
    for number, session in enumerate(facts.sessions if facts is not None and facts.sessions is not UNSET else []):
        if session.checkpoint_ok is False:
            yield _unwritten(session, f"session {number}", min_health)
        elif session.look_errors:
            message = f"the recorder could not look at a part of the training in {{where}}, and wrote every file{_first(session)}"
            yield Hit(severity="note", where=f"session {number}", message=message)


def _unwritten(session: Session, where: str, min_health: float) -> Hit:
    message = f"the recorder could not write every file of {{where}}{_first(session)}"
    if session.write_errors and session.look_errors is UNSET:
        message = "the recorder itself failed in {where}: its run.json does not say whether to write files or to look at a part"
    return Hit(severity="sev2", where=where, value=0.0, limit=min_health, message=message)


def _first(session: Session) -> str:
    """Return the first failure of the graver kind as the end of a message."""
    failed = session.first_write_error if session.checkpoint_ok is False else session.first_look_error
    return "" if failed is UNSET else ": " + failed.replace("{", "{{").replace("}", "}}")
