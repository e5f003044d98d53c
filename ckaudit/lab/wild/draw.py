"""What is drawn: a family of the zoo, how a healthy user might train it, and one fault."""

from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from ckaudit.lab.wild.faults import FAULTS, Fault
from ckaudit.lab.zoo import FAMILIES, WildSplit, families_of
from ckaudit.lab.zoo.recipe import OptimizerName, Recipe, ScheduleName, Through, own_loss
from ckaudit.recorder.drill.damage import Amount

SCHEDULES: Sequence[ScheduleName] = ("constant", "cosine", "linear", "onecycle", "warmup_stable_decay", "steps")
LIKE_ADAM: Sequence[OptimizerName] = ("adamw", "adam", "nadam", "radam", "adafactor", "lion")
DECOUPLED = ("adamw", "lion")  # by others, a decay joins a gradient that is then divided by its own size: ten times as strong
RATE_OF: dict[str, float] = {"lion": 0.2}  # a sign moves a weight further than what Adam makes of a gradient


class Draw(Struct, frozen=True, kw_only=True):
    """A healthy training and the same one with a fault.

    Attributes:
        split: Which families it is drawn from.
        seed: Number of the drawing.
        index: Number of the draw in it, from 0.
        family: The family.
        fault: Name of the fault.
        amount: How it is done.
        healthy: The healthy recipe.
    """

    split: WildSplit
    seed: int
    index: int
    family: str
    fault: str
    amount: Amount
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
        """What goes wrong."""
        return FAULTS[self.fault]

    @property
    def ill(self) -> Recipe:
        """The recipe with the fault."""
        return self.kind.done(self.healthy, self.amount)


def draw(split: WildSplit, seed: int, index: int) -> Draw:
    """Return one draw; it depends on nothing but these three.

    Families come in turn, each once before one comes again, in an order of chance; so do faults, where they suit.
    """
    source = Random(f"{split}/{seed}/{index}")
    families = families_of(split)
    family = _in_turn(families, index, f"{split}/{seed}/families")
    healthy = vary(FAMILIES[family], source)
    in_turn = [_in_turn(sorted(FAULTS), index + later, f"{split}/{seed}/faults") for later in range(len(FAULTS))]
    fault = next(name for name in in_turn if FAULTS[name].suits(healthy))
    if FAULTS[fault].loop and healthy.through not in ("loop", "accelerate"):
        healthy = _through(healthy, source.choice(("loop", "accelerate")))
    onset = round(healthy.steps * source.uniform(0.3, 0.7)) if FAULTS[fault].sudden else 1
    return Draw(
        split=split, seed=seed, index=index, family=family, fault=fault, amount=Amount(onset, source.random()), healthy=healthy
    )


def _in_turn(names: Sequence[str], index: int, key: str) -> str:
    """Return the one of names whose turn it is: every round has an order of its own."""
    around, place = divmod(index, len(names))
    return Random(f"{key}/{around}").sample(names, len(names))[place]


def vary(recipe: Recipe, source: Random) -> Recipe:
    """Return a recipe as another user might have written it: in all that a healthy training may differ in."""
    steps = source.choice((60, 100, 100, 150, 200, 300))
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
        every=source.choice((10, 20, 20, 50)),
        bf16=source.random() < 0.1,
    )
    if recipe.loss is own_loss:
        through: Through = source.choice(("transformers", "transformers", "loop", "accelerate"))
        # The Trainer adds up the losses of micro-batches where a model does not divide them itself: no healthy accumulation.
        return replace(_through(varied, through), accumulate=1 if through == "transformers" else varied.accumulate)
    return _through(varied, source.choice(("loop", "loop", "lightning", "lightning", "accelerate")))


def _decay(recipe: Recipe, optimizer: OptimizerName, source: Random) -> float:
    drawn = source.choice((recipe.weight_decay, 0.0, 0.01, 0.1))
    if optimizer in DECOUPLED:
        return drawn
    return recipe.weight_decay if optimizer == recipe.optimizer else 0.0


def _through(recipe: Recipe, through: Through) -> Recipe:
    facts = {name: value for name, value in recipe.facts.items() if name != "batch_of"}
    return replace(recipe, through=through, facts=facts | ({"batch_of": list} if through == "lightning" else {}))
