"""Random draws: a family of the zoo, the settings of a healthy training, and one fault."""

from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import torch
from msgspec import Struct
from msgspec.structs import replace
from torch import Tensor

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.lab.wild.damage import runs_under
from ckaudit.lab.wild.data_faults import fed
from ckaudit.lab.wild.fault import Fault
from ckaudit.lab.wild.faults import FAULTS
from ckaudit.lab.zoo import FAMILIES, WildSplit, families_of
from ckaudit.lab.zoo.picture_models import seen
from ckaudit.lab.zoo.recipe import OptimizerName, Recipe, ScheduleName, Through, classified, mixed_up, own_loss
from ckaudit.lab.zoo.sequence_models import next_token_loss, read, translation_loss
from ckaudit.lab.zoo.text_models import next_tokens
from ckaudit.recorder.drill.damage import DrillStrength

SCHEDULES: Sequence[ScheduleName] = ("constant", "cosine", "linear", "onecycle", "warmup_stable_decay", "steps")
LIKE_ADAM: Sequence[OptimizerName] = ("adamw", "adam", "nadam", "radam", "adafactor", "lion")
DECOUPLED = ("adamw", "lion")  # others add decay to a gradient that is then divided by its own size: ten times as strong
BY_TRL = ("sft", "dpo")
# How often checkpoints are written: mostly by default, or every fifth or every fiftieth step.
CADENCES: Sequence[dict[str, Any]] = (
    *({},) * 6,
    {"cadence": (Cadence(until=100, every=5), Cadence(until=None, every=50))},
    {"cadence": (Cadence(until=None, every=50),)},
)
RATE_OF: dict[str, float] = {"lion": 0.2}  # a sign moves a weight further than Adam's normalised gradient


class Draw(Struct, frozen=True, kw_only=True):
    """A healthy training, and the same one with a fault.

    Attributes:
        split: Split of the families.
        seed: Number of the drawing.
        index: Index of the draw, from 0.
        family: The family.
        fault: Name of the fault.
        amount: Onset and strength of the fault.
        healthy: The healthy recipe.
    """

    split: WildSplit
    seed: int
    index: int
    family: str
    fault: str
    amount: DrillStrength
    healthy: Recipe

    @property
    def name(self) -> str:
        """The folder of its recordings in the cache."""
        return f"{self.split}.{self.seed}.{self.index:04}"

    @property
    def training_seed(self) -> int:
        """The seed of model, data and order."""
        return 100_000 + 1_000 * self.seed + self.index

    @property
    def kind(self) -> Fault:
        """The fault."""
        return FAULTS[self.fault]

    @property
    def ill(self) -> Recipe:
        """The recipe with the fault."""
        return self.kind.done(self.healthy, self.amount)


def draw(split: WildSplit, seed: int, index: int) -> Draw:
    """Return one draw; it depends on these three arguments only.

    Families come in random order, each once before any is repeated; so do applicable faults.
    """
    source = Random(f"{split}/{seed}/{index}")
    families = families_of(split)
    family = _in_turn(families, index, f"{split}/{seed}/families")
    healthy = vary(FAMILIES[family], source)
    in_turn = [_in_turn(sorted(FAULTS), index + later, f"{split}/{seed}/faults") for later in range(len(FAULTS))]
    fault = next(name for name in in_turn if _suits(FAULTS[name], healthy))
    if FAULTS[fault].loop and healthy.through not in ("loop", "accelerate"):
        healthy = _through(healthy, source.choice(("loop", "accelerate")))
    healthy = FAULTS[fault].on(healthy)
    onset = round(healthy.steps * source.uniform(0.3, 0.7)) if FAULTS[fault].sudden else 1
    return Draw(
        split=split,
        seed=seed,
        index=index,
        family=family,
        fault=fault,
        amount=DrillStrength(onset, source.random()),
        healthy=healthy,
    )


def _suits(fault: Fault, healthy: Recipe) -> bool:
    """Tell whether a fault can be applied to a recipe; the trainers of TRL cannot be replaced by a user's loop."""
    return not (fault.loop and healthy.through in BY_TRL) and fault.suits(healthy)


def _in_turn(names: Sequence[str], index: int, key: str) -> str:
    """Return the name at an index: names repeat in rounds, each in its own random order."""
    around, place = divmod(index, len(names))
    return Random(f"{key}/{around}").sample(names, len(names))[place]


def vary(recipe: Recipe, source: Random) -> Recipe:
    """Return a recipe with random variations that a healthy training may have."""
    steps = source.choice((1_000, 2_000, 5_000) if recipe.long and source.random() < 0.15 else (60, 100, 100, 150, 200, 300))
    optimizer = source.choice(LIKE_ADAM) if recipe.optimizer in LIKE_ADAM and source.random() < 0.5 else recipe.optimizer
    schedule = source.choice(SCHEDULES)
    varied = replace(
        recipe,
        steps=steps,
        optimizer=optimizer,
        schedule=schedule,
        warmup=max(recipe.warmup, source.choice((0, steps // 20, steps // 10))) if schedule != "onecycle" else 0,
        lr=recipe.lr * RATE_OF.get(optimizer, 1.0) * 10 ** source.uniform(-0.3, 0.0),
        weight_decay=_decay(recipe, optimizer, source),
        clip=source.choice((recipe.clip, None, 1.0)),
        accumulate=source.choice((1, 1, 1, 2)),
        held_out=source.choice((recipe.held_out, recipe.held_out, recipe.held_out, 0)),
        every=source.choice((10, 20, 20, 50)) * (1 if steps < 1_000 else 10),
        precision="bfloat16" if source.random() < 0.1 else "float32",
        facts={**recipe.facts, **source.choice(CADENCES)},
        names_held_out=source.random() < 0.5,
    )
    if recipe.through in BY_TRL:
        return replace(varied, accumulate=1)
    if recipe.opponent:
        return replace(varied, accumulate=1, clip=None)
    if recipe.loss is own_loss:
        through: Through = source.choice(("transformers", "transformers", "loop", "accelerate"))
        # The Trainer sums the losses of micro-batches if a model does not divide them itself, so accumulation is not healthy.
        varied = replace(_through(varied, through), accumulate=1 if through == "transformers" else varied.accumulate)
    else:
        varied = _through(varied, source.choice(("loop", "loop", "lightning", "lightning", "accelerate")))
    return _modern(varied, source)


def _modern(recipe: Recipe, source: Random) -> Recipe:
    """Return a recipe with features that some users add: newer optimizers, float16, label smoothing, mixup, growing lengths."""
    if recipe.precision == "bfloat16" and not runs_under(torch.bfloat16)(recipe):
        recipe = replace(recipe, precision="float32")
    if recipe.loss in (classified, next_token_loss, translation_loss) and source.random() < 0.2:
        recipe = replace(recipe, loss=partial(recipe.loss, smoothing=0.1))
    if recipe.loss is classified and recipe.rows is seen and source.random() < 0.3:
        recipe = replace(recipe, loss=mixed_up)
    if recipe.through != "loop":
        return recipe
    if recipe.optimizer in LIKE_ADAM and source.random() < 0.25:
        optimizer: OptimizerName = source.choice(("muon", "schedule_free"))
        lr = recipe.lr / RATE_OF.get(recipe.optimizer, 1.0)
        schedule: ScheduleName = "constant" if optimizer == "schedule_free" else recipe.schedule
        recipe = replace(recipe, optimizer=optimizer, lr=lr, schedule=schedule, precision="float32")
    if recipe.rows in (next_tokens, read) and source.random() < 0.25:
        return grow_length(recipe)
    if recipe.precision == "float32" and source.random() < 0.06 and runs_under(torch.float16)(recipe):
        return replace(recipe, precision="float16")
    return recipe


def grow_length(recipe: Recipe) -> Recipe:
    """Return a recipe whose sequences begin at half of their length and have full length from the middle of the training on."""

    def change(index: int, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        share = min(1.0, 0.5 + index / (recipe.steps * recipe.accumulate))
        return {name: column[:, : round(share * column.shape[1])] for name, column in batch.items()}

    return fed(recipe, change)


def _decay(recipe: Recipe, optimizer: OptimizerName, source: Random) -> float:
    drawn = source.choice((recipe.weight_decay, 0.0, 0.01, 0.1))
    if optimizer in DECOUPLED:
        return drawn
    return recipe.weight_decay if optimizer == recipe.optimizer else 0.0


def _through(recipe: Recipe, through: Through) -> Recipe:
    facts = {name: value for name, value in recipe.facts.items() if name != "batch_of"}
    return replace(recipe, through=through, facts=facts | ({"batch_of": list} if through == "lightning" else {}))
