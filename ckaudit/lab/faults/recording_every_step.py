"""Statistics of everything at every step."""

from typing import Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Plan
from ckaudit.lab.story import Amount, fault


@fault(
    group="records",
    truth="recording_too_often",
    symptoms=("recording_overhead",),
    consequences=("step_time_jump",),
    dev=Amount(strength=1),
    test=Amount(strength=2),
    detectable=50,
)
class RecordingEveryStep(Change):
    """Checkpoints are `strength` apart in steps, with singular values and hashes of every tensor; the training is stopped early.

    Recording takes four tenths of the time, from the first steps on.
    """

    def plan(self, plan: Plan) -> Plan:
        """Stop when there is enough to see."""
        return replace(plan, stop=200)

    def facts(self, facts: dict[str, Any]) -> dict[str, Any]:
        """Ask for a checkpoint all the time."""
        from ckaudit.contract.manifest import Cadence

        cadence = [Cadence(until=None, every=int(self.strength))]
        return facts | {"cadence": cadence, "spectral_norms": ["*"], "exact": True, "budget_kb": None}
