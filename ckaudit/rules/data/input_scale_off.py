"""DATA009: inputs are far from unit scale."""

from collections.abc import Iterator

import numpy as np

from ckaudit.contract.schema.manifest import Manifest
from ckaudit.metrics.activations import activation_rms
from ckaudit.metrics.inputs import input_scale
from ckaudit.rules.rule import FACTS, Hit, Skip, rule
from ckaudit.run.series import Series
from ckaudit.run.spans import spans


@rule("DATA009", severity="sev2", needs=[], wants=[activation_rms, FACTS, input_scale], unit="1", memory=1)
def input_scale_off(
    outputs: Series | None,
    facts: Manifest | None,
    scale: Series | None,
    *,
    max_rms: float = 20.0,
    min_rms: float = 0.01,
    first_steps: int = 100,
) -> Iterator[Hit | Skip]:
    """Inputs are far from unit scale.

    ## What it checks
    The root mean square of a model's inputs within the first `first_steps` steps: of its batches where they were seen, else as
    its first layer shows it while that layer's weights are still random. Inputs are off at the first checkpoint and at more than
    half of all:

    - A root mean square above `max_rms` is too large, as of images from 0 to 255.
    - A root mean square below `min_rms` is too small, as of images that were divided twice.
    - In the lab's dev split normalized inputs give 0.8 to 1.1, images times 255 give 205 to 233.
    ## Why it matters
    Initial weights and learning rates are made for inputs of about one; others saturate the first layer or vanish in it.
    ## False alarms
    Models that begin with an embedding have no such scale and are not judged. Images from 0 to 1 are within the limits, and so
    are features of some units. One odd batch among others is an illness of that batch alone.
    """
    if scale is None and (outputs is None or facts is None):
        yield Skip("not_recorded", "needs activation_rms")
        return
    if scale is None:
        yield Skip("not_applicable", "the model begins with no layer that tells the scale of its inputs")
        return
    early = (scale.steps <= max(first_steps, int(scale.steps[0])))[:, None]
    for bad, limit, word in ((scale.values > max_rms, max_rms, "large"), (scale.values < min_rms, min_rms, "small")):
        # Weights that change their scale change what the first layer shows of its inputs.
        if 2 * (bad & early).sum() <= early.sum() or not bad[int(np.argmax(scale.finite[:, 0]))]:
            continue
        for span in spans(scale, bad & early):
            yield Hit.over(
                span,
                "sev2",
                f"the inputs of {{where}} have a scale of {{value:.3g}}: too {word} for weights made for about one",
                badness=scale.values if word == "large" else -scale.values,
                value=scale.values,
                limit=limit,
            )
