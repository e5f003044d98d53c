"""A mixture whose shares drift."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


@fault(
    group="data",
    truth="data_distribution_shift",
    symptoms=("source_drift", "token_drift"),
    consequences=("overfitting", "loss_spike", "loss_rises"),
    dev=Amount(onset=120, strength=150),
    test=Amount(onset=180, strength=200),
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
