"""Batches that are empty, junk, repeated, or in a bad order."""

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
    "empty_batch",
    group="data",
    truth="bad_batch",
    acceptable=("nonfinite_operation",),
    symptoms=("nonfinite_values",),
    consequences=("zero_gradients", "dead_parameter", "skipped_updates"),
    dev=FaultStrength(onset=140),
    test=FaultStrength(onset=220),
)
class EmptyBatch(Change):
    """All targets of one batch are padding, so that the mean over the counted ones is 0 / 0.

    The loss of that step is NaN and every gradient exactly zero; the training goes on unharmed.

    Seen under seed 0, with an onset of 31: a NaN in the loss of one step, a gradient norm of 0, the next loss as if nothing had
    been.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Ignore all targets."""
        import torch

        from ckaudit.lab.task import IGNORED

        return replace(batch, targets=torch.full_like(batch.targets, IGNORED)) if training.step == self.onset else batch


@fault(
    "junk_batch_one",
    group="data",
    truth="bad_batch",
    symptoms=("loss_spike", "token_drift"),
    consequences=("exploding_gradient", "frequent_clipping", "update_out_of_band", "activation_drift", "dominant_tensor"),
    dev=FaultStrength(onset=220, strength=1.0),
    test=FaultStrength(onset=310, strength=0.5),
)
class JunkBatchOne(Change):
    """In the batch of one step a share `strength` of the rows is random tokens, their targets the next ones.

    The loss jumps for one step, with a gradient of unusual size; weights and later losses hardly notice.

    Seen under seed 0, with an onset of 41: a loss of 6.6 and a gradient norm of 10 in one step, 2.6 and 4 in the next, and
    all as before two steps later.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace the tokens of the first rows."""
        import torch

        if training.step != self.onset:
            return batch
        stream = torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1)  # (B, T + 1)
        count = int(self.strength * len(stream))
        stream = torch.cat((swapped(stream[:count], training, share=1.0), stream[count:]))
        return replace(batch, inputs=stream[:, :-1].contiguous(), targets=stream[:, 1:].contiguous())


@fault(
    "junk_shard",
    group="data",
    truth="bad_batch",
    symptoms=("loss_spike", "token_drift"),
    consequences=("exploding_gradient", "frequent_clipping", "update_out_of_band", "activation_drift", "dominant_tensor"),
    dev=FaultStrength(onset=150, strength=6),
    test=FaultStrength(onset=270, strength=4),
)
class JunkShard(Change):
    """For `strength` steps from the onset on the batches are random tokens, their targets the next ones.

    The loss jumps above that of a model that knows nothing, the tokens are spread over the whole vocabulary, and both recover.

    Seen under seed 0, with an onset of 41: losses of 6.6 and 4.5 to 5.0 after 2.5, a gradient norm of 10 (healthy 0.6), and a
    loss of 3.0 six steps after the last bad one.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Replace all tokens."""
        import torch

        if not self.onset <= training.step < self.onset + self.strength:
            return batch
        stream = swapped(torch.cat((batch.inputs, batch.targets[:, -1:]), dim=1), training, share=1.0)  # (B, T + 1)
        return replace(batch, inputs=stream[:, :-1].contiguous(), targets=stream[:, 1:].contiguous())


@fault(
    "inputs_x255",
    group="data",
    truth="inputs_not_normalized",
    symptoms=("input_scale_off",),
    consequences=(
        *("activation_drift", "initial_loss_off", "overfitting", "loss_not_falling"),
        *("vanishing_gradient", "update_out_of_band"),
    ),
    dev=FaultStrength(strength=255),
    test=FaultStrength(strength=64),
    family="cnn",
)
class InputsX255(Change):
    """Inputs of training are `strength` times as large as they should be; those of evaluations are right.

    It is as if only one of two pipelines divided by 255.
    What the first convolution puts out is as much larger; batch norm hides it from the loss, but not from evaluations.

    Seen under seed 0: outputs of the first convolution of 133 (healthy 0.5), the same training loss, a validation loss of 2.3
    at step 150 (healthy 0.46).
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Scale the inputs."""
        return replace(batch, inputs=batch.inputs * self.strength)


@fault(
    "repeat_batch",
    group="data",
    truth="loader_stuck",
    symptoms=("repeated_batch", "overfitting"),
    consequences=(
        *("loss_below_floor", "vanishing_gradient", "entropy_collapse", "logit_growth", "exploding_gradient"),
        *("frequent_clipping", "update_out_of_band"),
    ),
)
class RepeatBatch(Change):
    """Every step gets the first batch, as from a loader that is created again in each step.

    It is learnt by heart: the training loss falls towards zero, the validation loss rises.

    Seen under seed 0: one hash; at step 75 a training loss of 1.34 and a validation loss of 2.66 that rises.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Return the first batch."""
        return training.corpus.batch(1)


@fault(
    "repeat_batch_late",
    group="data",
    truth="loader_stuck",
    symptoms=("repeated_batch", "overfitting"),
    consequences=(
        *("loss_below_floor", "vanishing_gradient", "entropy_collapse", "logit_growth", "exploding_gradient"),
        *("frequent_clipping", "update_out_of_band"),
    ),
    dev=FaultStrength(onset=180),
    test=FaultStrength(onset=260),
)
class RepeatBatchLate(Change):
    """From the onset on every step gets the batch of the step before the onset, while the loader keeps counting.

    The training loss dives, the validation loss rises.

    Seen under seed 0, with an onset of 61: one hash; a training loss that goes from 2.2 to 1.36 in 40 steps, a validation loss
    from 2.2 to 2.46.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Return the last new batch."""
        if training.step < self.onset:
            return batch
        return replace(training.corpus.batch(self.onset - 1), id=batch.id)


@fault(
    "workers_share_seed",
    group="data",
    truth="batches_repeated",
    acceptable=("loader_stuck",),
    symptoms=("repeated_batch",),
    dev=FaultStrength(strength=2),
    test=FaultStrength(strength=4),
)
class WorkersShareSeed(Change):
    """Each batch comes `strength` times in a row, once from each worker, with a number of its own.

    The loss falls as always, from fewer distinct tokens than were counted.

    Seen under seed 0: every hash twice, under two names.
    """

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Return each batch several times."""
        return replace(training.corpus.batch((training.step - 1) // int(self.strength) + 1), id=batch.id)


@fault(
    "not_shuffled",
    group="data",
    truth="data_not_shuffled",
    acceptable=("data_distribution_shift",),
    symptoms=("source_drift", "token_drift", "loss_spike"),
    consequences=(
        "slice_regression",
        *(
            "overfitting",
            "exploding_gradient",
            "frequent_clipping",
            "loss_rises",
            "update_out_of_band",
            "gradient_noise_too_high",
        ),
        *("dominant_tensor", "activation_drift"),
    ),
    dev=FaultStrength(strength=80),
    test=FaultStrength(strength=50),
    detectable=80,
)
class NotShuffled(Change):
    """The batches of `strength` steps contain one source only, then those of the next one, in turn.

    The training loss jumps with each change and falls again, the validation loss swings with what was seen last.

    Seen under seed 1, with a strength of 30: the source changes at steps 31 and 61, the loss goes from 3.0 to 4.1 and from 1.7 to
    4.4 there, and the validation loss of a source that is not yet shown rises to 4.9.
    """

    def plan(self, plan: Plan) -> Plan:
        """Train on a corpus of several sources."""
        return replace(plan, data=replace(plan.data, corpus="mixture")) if plan.data.corpus == "verbs" else plan

    def begin(self, training: "Training") -> None:
        """Draw the batches of this step from one source."""
        from ckaudit.lab.corpora import open_corpus
        from ckaudit.lab.corpora.sources import TEXTS

        data = training.plan.data
        names = tuple(TEXTS[data.corpus])
        name = names[(training.step - 1) // int(self.strength) % len(names)]
        training.corpus = open_corpus(replace(data, shares={name: 1.0}), training.plan.seed)
