"""Sources that come one after the other."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
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
    dev=Amount(strength=80),
    test=Amount(strength=50),
    detectable=80,
)
class NotShuffled(Change):
    """The batches of `strength` steps hold one source only, then those of the next, in turn.

    The training loss jumps with each change and falls again, the validation loss swings with what was seen last.

    Seen under seed 1, with a strength of 30: the source changes at steps 31 and 61, the loss goes from 3.0 to 4.1 and from
    1.7 to 4.4 there, and the validation loss of a source that is not yet shown rises to 4.9.
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
