"""Sources that come in an order of their own."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import control

if TYPE_CHECKING:
    from ckaudit.lab.batch import Batch
    from ckaudit.lab.training import Training


@control(expected=("source_drift", "token_drift"))
class CurriculumSources(Change):
    """Batches come from one half of the sources for a tenth of the steps, from the others for a tenth, then from all.

    It looks ill because the tokens change their distribution twice and the loss jumps with them: the data manifest lists the
    stages, each batch says which sources it is from, and the last, longest stage has all that is evaluated.
    """

    def plan(self, plan: Plan) -> Plan:
        """Choose a corpus that has sources, and make the stages."""
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
        """Say which stages there are."""
        stages = [{"first_step": first, "sources": names} for first, names in self._stages.items()]
        return facts | {"data_manifest": {"stages": stages}}
