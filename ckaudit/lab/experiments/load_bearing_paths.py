"""EXP-12: the norm of queries and keys, or the rotation, is taken away in the middle."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from ckaudit.lab.change import Change
from ckaudit.lab.plan import Gpt, Plan
from ckaudit.lab.specs import experiment

if TYPE_CHECKING:
    from ckaudit.lab.training import Training


class Modern(Change):
    """A model with rotary positions and normed queries and keys."""

    def plan(self, plan: Plan) -> Plan:
        """Turn both on."""
        assert isinstance(plan.model, Gpt)
        return replace(plan, model=replace(plan.model, positions="rope", qk_norm=True))

    def updated(self, training: "Training") -> None:
        """Perturb every layer of attention after step `onset`."""
        if training.step == self.onset:
            for name, module in training.model.named_modules():
                if name.endswith(".attn"):
                    self.perturb(module)

    def perturb(self, attention: Any) -> None:
        """Change a layer; nothing, unless overridden."""


class Unnormed(Modern):
    """Queries and keys are no longer normed."""

    def perturb(self, attention: Any) -> None:
        """Let them through as they are."""
        attention.q_norm.forward = attention.k_norm.forward = lambda x: x


class Unrotated(Modern):
    """Queries and keys are no longer rotated, so that nothing tells positions apart but the mask."""

    def perturb(self, attention: Any) -> None:
        """Stop the rotation."""
        attention.rotates = False


@experiment(
    "EXP-12",
    look=("train_loss_raw", "val_loss", "grad_global_norm", "max_attn_logit", "min_normalized_entropy", "head_kind_share"),
    steps=(50, 75, 76, 80, 90, 100, 125),
)
def load_bearing_paths() -> Mapping[str, Change]:
    """Norm of queries and keys, and rotation: which of them the model leans on.

    After step 75 one of the two is taken away in every layer, and the training goes on. The jump of the loss at step 76
    says how much the model leaned on that path; what remains of it at the end, how much it needs it.

    Without the norm logits are on another scale at once, and entropies with them: the knowledge is still there, at the wrong
    temperature. Without the rotation the model no longer knows where a token stands, so that heads of the
    previous character lose what they look at.
    """
    return {"both kept": Modern(75), "norm taken away": Unnormed(75), "rotation stopped": Unrotated(75)}
