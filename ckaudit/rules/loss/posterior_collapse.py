"""LOSS012: the code of a variational autoencoder tells nothing of its input."""

from collections.abc import Iterator

import numpy as np

from ckaudit.metrics.loss import loss_part
from ckaudit.rules.rule import Hit, Skip, rule
from ckaudit.run.medians import median
from ckaudit.run.series import Series


@rule("LOSS012", severity="sev2", needs=[loss_part], unit="nats")
def posterior_collapse(parts: Series, *, min_share: float = 1e-3, min_points: int = 6) -> Iterator[Hit | Skip]:
    """The code of a variational autoencoder tells nothing of its input.

    ## What it checks
    The rule compares the term that is logged as the divergence of the code (KL) with the reconstruction term, from `min_points`
    steps with both on. Over the last third, the divergence's median is less than `min_share` of the reconstruction's median.
    ## Why it matters
    The divergence is how many nats the code tells of its input. At zero the decoder writes the same for all inputs: the model has
    no code, and its loss is no worse for it.
    ## False alarms
    A code that tells something looks the same where its divergence is divided by all numbers of the code and weighted by less
    than a thousandth. A divergence between a student and a teacher is meant to fall to zero: it is not logged beside a
    reconstruction. A divergence of exactly 0 at all steps is switched off, as in a plain autoencoder.
    """
    if not {"kl", "reconstruction"} <= set(parts.labels):
        yield Skip("not_applicable", "no divergence is logged beside a reconstruction")
        return
    kl, restored = (parts.values[:, parts.places[name]] for name in ("kl", "reconstruction"))
    rows = np.flatnonzero(np.isfinite(kl) & np.isfinite(restored))
    if len(rows) < min_points:
        yield Skip("too_few_points", f"{len(rows)} steps have both terms; {min_points} are needed")
        return
    limits = min_share * np.abs(restored[rows])
    late = slice(-(-2 * len(rows) // 3), None)
    if not kl[rows].any() or median(kl[rows][late]) >= median(limits[late]):
        return
    above = np.flatnonzero(kl[rows] >= limits)
    since = int(above[-1]) + 1 if len(above) and above[-1] + 1 < len(rows) else 0
    yield Hit.at(
        parts.steps[rows][since:],
        "sev2",
        f"the divergence of the code ends at {{value:.2g}}, less than {min_share:.2g} of the reconstruction: the code tells "
        "nothing of its input",
        where="kl",
        value=float(kl[rows][-1]),
        limit=float(median(limits[late])),
        worst=-1,
    )
