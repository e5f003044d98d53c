"""Evaluations: perplexity, onset of overfitting, small benchmarks, and whether the evaluations stay comparable."""

import numpy as np
from msgspec import UNSET

from ckaudit.metrics.divergence import divergence_step as onset
from ckaudit.metrics.loss import train_loss_at_evals, val_loss
from ckaudit.metrics.metric import metric
from ckaudit.metrics.pairs import filled
from ckaudit.run.run import Run
from ckaudit.run.series import Floats, Series, empty, single


def accuracy_shares(values: Floats) -> Floats:
    """Return accuracies as shares; many writers log percent.

    >>> accuracy_shares(np.array([62.0, 93.5])).tolist()
    [0.62, 0.935]
    """
    return values / 100 if values.max() > 1 else values


@metric(unit="1", reads=[val_loss, "val_ppl"], source="catalogue M54", memory=1)
def val_ppl(run: Run) -> Series:
    r"""Perplexity on held-out text: the number of equally likely tokens that the loss corresponds to.

    $$\exp(L_{val})$$

    Shape (E, V): evaluations by held-out sets. The logged perplexity is used where there is no loss. A loss that is not over
    tokens is not converted.
    """
    if run.loss_kind == "other":
        return run.scalar("val_ppl")
    loss, logged = val_loss(run), run.scalar("val_ppl")
    of_loss = loss.mapped(np.exp, "val_ppl", "1")
    if loss.labels == ("val_loss",):
        of_loss = Series(of_loss.name, of_loss.unit, of_loss.steps, ("val_ppl",), of_loss.values, of_loss.recorded)
    return filled(of_loss, logged)


@metric(unit="steps", reads=[val_loss, train_loss_at_evals], source="F12; Prechelt 1998, generalization loss")
def divergence_step(run: Run) -> Series:
    r"""Step after which the gap between held-out and training loss widens for good.

    $$t^* = \min \{ t : g(t_2) > g(t_1) \; \text{for all evaluations} \; t \le t_1 < t_2 \}, \quad t \ge t_{best}$$

    Shape (E, 1): at each evaluation the step that is known by then; at some of them if there are more than 500. Noise of the gap
    does not end a widening, and the held-out loss must have risen, see `divergence.divergence_step`. NaN if the losses have not
    diverged; not recorded without a training loss.
    """
    evals, level = val_loss(run), train_loss_at_evals(run)
    if not evals or not level:
        return empty("divergence_step")
    onsets, looked_at = np.full(len(evals.steps), np.nan), _looked_at(len(evals.steps))
    for row in looked_at:
        step = onset(evals.steps[: row + 1], level.values[: row + 1, 0], evals.values[: row + 1, 0])
        onsets[row] = np.nan if step is None else step
    return single("divergence_step", "steps", evals.steps, onsets, np.isin(np.arange(len(onsets)), looked_at))


def last_divergence_step(run: Run) -> int | None:
    """Return the divergence step of the whole run; None if the losses have not diverged."""
    evals, level = val_loss(run), train_loss_at_evals(run)
    return onset(evals.steps, level.values[:, 0], evals.values[:, 0]) if evals and level else None


def _looked_at(evals: int, *, every_one: int = 500) -> list[int]:
    """Return the rows to compute, independent of the length of the log: all of the first, then every second, every fourth, ..."""
    return [row for row in range(evals) if row % 2 ** max(0, (row // every_one).bit_length()) == 0]


@metric(unit="score", reads=["microbench_score"], source="catalogue M58", memory=1, worst="low")
def microbench_score(run: Run) -> Series:
    r"""Score on small benchmarks that run during training.

    $$s_k$$

    Shape (T, K): logged steps by benchmarks, "microbench_score/arc_easy"; in each benchmark's own unit.
    """
    return run.scalar("microbench_score")


@metric(unit="1", reads=["eval_artifact_hash"], source="catalogue M59, manifest MAN-5", worst="low")
def eval_artifact_hash(run: Run) -> Series:
    r"""Whether each evaluation used the expected artifact: 1 for the same hash, 0 for another.

    $$\mathbb{1}[\,h_t = h_0\,]$$

    Shape (E, K): evaluations by artifacts, "eval_artifact_hash/wikitext". $h_0$ is the hash in run.json, or else that of the
    first evaluation, which is then not recorded itself. Scores before and after a 0 are not comparable.
    """
    planned = run.manifest.eval_artifact_hashes if run.manifest else UNSET
    hashes = run.words("eval_artifact_hash")
    series = empty("eval_artifact_hash")
    for label, words in hashes.items():
        # Without an expected hash the first one is the reference, and cannot be compared with itself.
        expected = None if planned is UNSET else planned.get(label)
        same = np.array([[word == (expected or words.values[0])] for word in words.values], float)
        if expected is None:
            same[:1] = np.nan
        compared = Series("eval_artifact_hash", "1", np.array(words.steps, np.int64), (label,), same, ~np.isnan(same))
        series = filled(series, compared) if series else compared
    return series


@metric(unit="1", reads=["eval_in_training_mode"], source="PyTorch, Module.eval", memory=1)
def eval_in_training_mode(run: Run) -> Series:
    r"""Share of the passes without gradients that ran with dropout on, or with batch statistics in batch norm.

    $$\frac{n_{train}}{n_{train} + n_{eval}}$$

    Shape (E, 1): steps with an evaluation; the passes since the step before count. A pass is one call of the watched model itself
    under `no_grad` or `inference_mode`. It is in training mode if any module whose output depends on the mode is. Not recorded
    without such a pass, without such a module, or if the model is compiled.
    """
    return run.scalar("eval_in_training_mode")


@metric(unit="1", reads=["train_in_eval_mode"], source="PyTorch, Module.train", memory=1)
def train_in_eval_mode(run: Run) -> Series:
    r"""Whether a step trained in evaluation mode, without dropout and with fixed batch-norm statistics.

    $$\mathbb{1}[\text{every pass with gradients, the model and all its parts in evaluation mode}]$$

    Shape (T, 1): steps with a call of the watched model itself. Not recorded without such a pass, if no module's output depends
    on the mode, or if the model is compiled.
    """
    return run.scalar("train_in_eval_mode")
