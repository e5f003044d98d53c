"""Sources that come in an order of their own."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@control()
class CurriculumSources(Change):
    """Batches come from one half of the sources for a tenth of the steps, from the others for a tenth, then from all.

    It looks ill because the tokens change their distribution twice and the loss jumps with them: each batch says which
    sources it is from, and the last, longest stage has all that is evaluated.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose a corpus that has sources."""
        corpus = "mixture" if plan.data.corpus == "verbs" else plan.data.corpus
        return replace(plan, data=replace(plan.data, corpus=corpus))

    def batch(self, training: "Training", batch: "Batch") -> "Batch":
        """Draw the batch from the sources of the stage."""
        from ckaudit.lab.corpora import open_corpus
        from ckaudit.lab.corpora.sources import TEXTS

        data, number = training.plan.data, batch.id or ""
        names = list(TEXTS[data.corpus])
        stage = training.step * 10 // training.plan.steps
        chosen = names[: len(names) // 2] if stage < 1 else names[len(names) // 2 :] if stage < 2 else names
        corpus = open_corpus(replace(data, shares=dict.fromkeys(chosen, 1.0)), training.plan.seed)
        part = int(number.rpartition("/")[2] or 0)
        parts = data.batch_size // len(batch.inputs)
        return replace(corpus.batch(training.step, part=part, parts=parts), source="+".join(chosen))
