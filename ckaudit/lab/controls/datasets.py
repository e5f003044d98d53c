"""Data that makes a loss jump, vary widely, or stall for a while."""

from random import Random
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.altered_batches import backwards
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import control

if TYPE_CHECKING:
    from torch import Tensor

    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@control("curriculum_length")
class CurriculumLength(Change):
    """Rows have a quarter of their length at first, half after an eighth of the steps, and all of it after a quarter.

    It looks ill because the held-out loss, on whole rows, is bad until late positions are trained, because the tokens of a step
    double twice, and because the first loss at a new length is higher than the last at the old one. The configuration lists the
    stages.
    """

    def plan(self, plan: Plan) -> Plan:
        """Plan the stages."""
        eighth, length = plan.steps // 8, plan.data.length
        self._stages = {1: length // 4, eighth + 1: length // 2, 2 * eighth + 1: length}
        return plan

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Keep the beginning of each row."""
        length = self._stages[max(first for first in self._stages if first <= training.step)]
        inputs, targets = batch.inputs[:, :length], batch.targets[:, :length]
        return replace(batch, inputs=inputs.contiguous(), targets=targets.contiguous())

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """State the stages."""
        stages = [{"first_step": first, "row_length": length} for first, length in self._stages.items()]
        return facts | {"config": {"stages": stages}}


@control("curriculum_sources", expected=("source_drift", "token_drift"))
class CurriculumSources(Change):
    """Batches come from one half of the sources for a tenth of the steps, from the others for a tenth, then from all.

    It looks ill because the tokens change their distribution twice and the loss jumps with them: the data manifest lists the
    stages, each batch has the names of its sources, and the last, longest stage contains everything that is evaluated.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose a corpus with sources, and plan the stages."""
        from ckaudit.lab.corpora.sources import TEXTS

        corpus = "mixture" if plan.data.corpus == "verbs" else plan.data.corpus
        names, tenth = list(TEXTS[corpus]), plan.steps // 10
        half = len(names) // 2
        self._stages = {1: names[:half], tenth + 1: names[half:], 2 * tenth + 1: names}
        return replace(plan, data=replace(plan.data, corpus=corpus))

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Draw the batch from the sources of the stage."""
        from ckaudit.lab.corpora import open_corpus

        data = training.plan.data
        names = self._stages[max(first for first in self._stages if first <= training.step)]
        corpus = open_corpus(replace(data, shares=dict.fromkeys(names, 1.0)), training.plan.seed)
        part, parts = int((batch.id or "0").rpartition("/")[2]), data.batch_size // len(batch.inputs)
        return replace(corpus.batch(training.step, part=part, parts=parts), source="+".join(names))

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """State the stages."""
        stages = [{"first_step": first, "sources": names} for first, names in self._stages.items()]
        return facts | {"data_manifest": {"stages": stages}}


@control("epoch_stairs")
class EpochStairs(Change):
    """The training set is small but sufficient, and lasts about five epochs.

    It looks ill because rows repeat and the training loss steps down at the start of each epoch. The held-out loss keeps falling.
    """

    def plan(self, plan: Plan) -> Plan:
        """Keep a fifth of the rows that the training would see."""
        rows = plan.steps * plan.data.batch_size // 5
        return replace(plan, data=replace(plan.data, rows=rows))


@control("heavy_tailed")
class HeavyTailed(Change):
    """In one of twelve batches, a quarter of the rows is of a rare and much harder kind.

    It looks ill because the loss of such a batch stands out repeatedly. The data is like that from the beginning, and the next
    batch is always unaffected.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Reverse rows of some batches."""
        is_hard = Random(f"{training.plan.seed}/hard/{training.step}").random() < 1 / 12
        return backwards(batch, len(batch.inputs) // 4) if is_hard else batch


@control("label_smoothing")
class LabelSmoothing(Change):
    """The training loss spreads a tenth of each target over all tokens (Szegedy et al. 2016); evaluations do not.

    It looks ill because the training loss stays above the held-out loss and cannot come near zero.
    """

    def loss(self, training: "Training", logits: "Tensor", batch: "Batch") -> "Tensor":
        """Smooth the targets."""
        from torch.nn.functional import cross_entropy

        return cross_entropy(logits.float().flatten(0, -2), batch.targets.flatten(), label_smoothing=0.1)


@control("plateau_before_grokking")
class PlateauBeforeGrokking(Change):
    """Each row repeats a random word of its own, which can only be predicted by looking back.

    It looks ill because the loss stays for long at the level of a model that knows only token frequencies. Then heads that look
    back form, and it falls at once.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace the batch by rows that repeat."""
        return _repeating(*batch.inputs.shape, seed=training.plan.seed * 1_000_000 + training.step)

    def evaluate(self, training: "Training") -> dict[str, float]:
        """Evaluate on repeating rows."""
        from ckaudit.lab.task import Evaluation

        training.evaluation = Evaluation(training.task, _repeating(128, training.plan.data.length, seed=999))
        return training.evaluate()


def _repeating(rows: int, length: int, *, seed: int, symbols: int = 16, repeats: int = 4) -> "Batch":
    import torch

    from ckaudit.lab.task import Batch

    drawn = torch.Generator().manual_seed(seed)
    word = torch.randint(1, symbols + 1, (rows, -(-(length + 1) // repeats)), generator=drawn)
    whole = word.repeat(1, repeats)[:, : length + 1]
    return Batch(inputs=whole[:, :-1].contiguous(), targets=whole[:, 1:].contiguous(), id=str(seed))


@control("recovered_small_spike", expected=("loss_spike",))
class RecoveredSmallSpike(Change):
    """In one batch, at three fifths of the steps, an eighth of the rows is of a kind never seen before.

    It looks ill because the loss jumps. The next batch is as good as the one before.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Reverse rows of one batch."""
        is_hard = training.step == training.plan.steps * 3 // 5
        return backwards(batch, len(batch.inputs) // 8) if is_hard else batch


@control("high_dropout")
class HighDropout(Change):
    """Dropout removes three of ten elements after attention and MLP.

    It looks ill because the training loss lies above the held-out loss throughout: evaluations run without dropout.
    """

    def plan(self, plan: Plan) -> Plan:
        """Raise the dropout."""
        return replace(plan, model=replace(plan.model, dropout=0.3))
