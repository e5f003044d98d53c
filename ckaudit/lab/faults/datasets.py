"""Datasets that are too small, noisy, change, or share texts with the validation set."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.altered_batches import swapped
from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.specs import FaultStrength, fault

if TYPE_CHECKING:
    from ckaudit.lab.task import Batch
    from ckaudit.lab.training import Training


@fault(
    "label_noise",
    group="data",
    truth="noisy_labels",
    symptoms=("target_misalignment", "train_val_inverted", "loss_not_falling"),
    consequences=("gradient_noise_too_high",),
    dev=FaultStrength(strength=0.3),
    test=FaultStrength(strength=0.15),
)
class LabelNoise(Change):
    """A share `strength` of the targets of each training batch is drawn at random; evaluations have the right ones.

    The training loss stays above the validation loss by what the random targets cost.

    Seen under seed 0: 0.7 of the targets are the next input; a training loss of 3.31 above a validation loss of 2.41 at step
    75 (healthy 2.09 and 2.08).
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace some targets."""
        return replace(batch, targets=swapped(batch.targets, training, share=self.strength))


@fault(
    "labels_noise_cnn",
    group="data",
    truth="noisy_labels",
    symptoms=("train_val_inverted", "loss_not_falling"),
    consequences=("gradient_noise_too_high",),
    dev=FaultStrength(strength=0.4),
    test=FaultStrength(strength=0.25),
    detectable=100,
    family="cnn",
)
class LabelsNoiseCnn(Change):
    """A share `strength` of the classes of each training batch is drawn at random; evaluations have the right ones.

    The training loss stays above the validation loss by what the random classes cost.

    Seen under seed 0: at step 150 a training loss of 1.70 (healthy 0.47) above a validation loss of 0.98 (healthy 0.46).
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace some classes."""
        return replace(batch, targets=swapped(batch.targets, training, share=self.strength))


@fault(
    "overfit_tiny",
    group="data",
    truth="too_little_data",
    symptoms=("overfitting",),
    consequences=(
        *("repeated_batch", "loss_below_floor", "entropy_collapse", "logit_growth", "exploding_gradient", "frequent_clipping"),
        *("vanishing_gradient", "update_out_of_band"),
    ),
    dev=FaultStrength(strength=48),
    test=FaultStrength(strength=40),
    detectable=150,
)
class OverfitTiny(Change):
    """The training set has `strength` rows, which are repeated.

    They are learnt by heart: the training loss falls towards zero while the validation loss rises from its first values on.

    Seen under seed 0: from step 75 to 150 the training loss goes from 1.7 to 0.56 and the validation loss from 2.3 to 3.5.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make the training set small."""
        return replace(plan, data=replace(plan.data, rows=int(self.strength)))


@fault(
    "overfit_slow",
    group="data",
    truth="too_little_data",
    symptoms=("overfitting",),
    consequences=(
        "loss_below_floor",
        "entropy_collapse",
        "logit_growth",
        "exploding_gradient",
        "frequent_clipping",
        "slice_regression",
    ),
    dev=FaultStrength(strength=200),
    test=FaultStrength(strength=150),
    detectable=300,
)
class OverfitSlow(Change):
    """The training set has `strength` rows, enough for the validation loss to fall at first.

    The gap opens in the second half of the training, and the validation loss rises late.

    Seen under seed 0: a validation loss that is lowest at step 225 (1.81) and 2.01 at step 400, while the training loss goes on
    to 0.96.
    """

    def plan(self, plan: Plan) -> Plan:
        """Make the training set small."""
        return replace(plan, data=replace(plan.data, rows=int(self.strength)))


@fault(
    "val_leak",
    group="data",
    truth="validation_leaks_into_training",
    symptoms=("train_val_inverted", "split_overlap", "loss_below_floor"),
    consequences=("repeated_batch",),
    dev=FaultStrength(strength=0.5),
    test=FaultStrength(strength=0.3),
    detectable=150,
)
class ValLeak(Change):
    """A share `strength` of each training batch is rows of the evaluation set, taken in turn.

    They are learnt by heart, so that the validation loss falls below the training loss.

    Seen under seed 0: a validation loss below the training loss by 0.1 from step 150 on, and by 0.13 at step 200 (healthy: by
    0.02 at most).
    """

    _held: "Batch"

    def begin(self, training: "Training") -> None:
        """Draw the held-out rows once."""
        if training.step == 1:
            self._held = training.corpus.held_out()

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace the first rows by held-out ones."""
        import torch

        count = int(self.strength * len(batch.inputs))
        rows = torch.arange((training.step - 1) * count, training.step * count) % len(self._held.inputs)
        inputs = torch.cat((self._held.inputs[rows], batch.inputs[count:]))
        return replace(batch, inputs=inputs, targets=torch.cat((self._held.targets[rows], batch.targets[count:])))


@fault(
    "drift",
    group="data",
    truth="data_distribution_shift",
    symptoms=("token_drift", "loss_spike"),
    consequences=(
        *("overfitting", "exploding_gradient", "frequent_clipping", "activation_drift", "update_out_of_band"),
        *("dominant_tensor", "loss_not_falling"),
    ),
    dev=FaultStrength(onset=180, strength=1.0),
    test=FaultStrength(onset=300, strength=0.4),
)
class Drift(Change):
    """From the onset on a share `strength` of the vocabulary is permuted, in inputs and targets, as by another tokenizer.

    The training loss jumps and is learnt down again, while the validation loss, on the old tokens, stays high.

    Seen under seed 0, with an onset of 61: a loss of 8.4 after 2.2 and of 3.0 after twenty steps, a gradient norm of 28, a
    validation loss of 5.1 (healthy 2.1).
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Rename the tokens."""
        import torch

        if training.step < self.onset:
            return batch
        count = training.corpus.vocabulary
        dice = torch.Generator().manual_seed(training.plan.seed)
        chosen = torch.randperm(count, generator=dice)[: int(self.strength * count)]
        names = torch.arange(count)
        names[chosen] = chosen.roll(1)
        return replace(batch, inputs=names[batch.inputs], targets=names[batch.targets])


@fault(
    "mixture_drift",
    group="data",
    truth="data_distribution_shift",
    symptoms=("source_drift", "token_drift"),
    consequences=("overfitting", "loss_spike", "loss_rises"),
    dev=FaultStrength(onset=120, strength=150),
    test=FaultStrength(onset=180, strength=200),
    detectable=100,
)
class MixtureDrift(Change):
    """From the onset on the share of the first source grows, until after `strength` steps no other is left.

    Nothing jumps: the tokens change slowly, the training loss falls a little faster, and what is held out of the other sources
    is forgotten.

    Seen under seed 1, with an onset of 31 and a strength of 40: the training loss of the healthy run, but at step 100
    validation losses of 3.1 to 3.9 on the sources that are left out (healthy 0.9 to 1.8).
    """

    def plan(self, plan: Plan) -> Plan:
        """Train on a corpus of several sources."""
        return replace(plan, data=replace(plan.data, corpus="mixture")) if plan.data.corpus == "verbs" else plan

    def begin(self, training: "Training") -> None:
        """Draw the batches of this step with other shares."""
        from ckaudit.lab.corpora import open_corpus
        from ckaudit.lab.corpora.sources import TEXTS

        if training.step < self.onset:
            return
        data = training.plan.data
        first, *others = TEXTS[data.corpus]
        left = max(0.0, 1 - (training.step - self.onset + 1) / self.strength)
        training.corpus = open_corpus(replace(data, shares={first: 1.0} | dict.fromkeys(others, left)), training.plan.seed)
