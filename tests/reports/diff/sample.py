"""Comparisons written by hand that between them hold everything a renderer can meet."""

from msgspec.structs import replace

from ckaudit.contract.schema.diff import VERSION, Answer, Comparison, Curve, Departure, Drift, Gated, Noise, Pair, Unlike
from ckaudit.contract.schema.report import Finding
from tests.reports.sample import HOSTILE, TOOL

RESIDUALS = Noise(
    source="residuals", message="The band is from each run's own scatter, times 1.6 for what another seed does to the level."
)
SPIKE = Finding(
    code="LOSS001",
    name="loss_spike",
    severity="sev1",
    message="loss is 4.1 at step 540, 9.0 of its own deviations above",
    where="loss",
    first_step=540,
    last_step=560,
)


def answer(question, word, left=None, right=None, band=None, unit="1", message=""):
    return Answer(
        question=question,
        title=f"How is {question}?",
        word=word,
        left=left,
        right=right,
        band=band,
        unit=unit,
        message=message or f"{question} is {word}: {left} and {right}",
    )


def pair(left, right, word, verdict, **members):
    return Pair(left=left, right=right, word=word, verdict=verdict, noise=members.pop("noise", RESIDUALS), **members)


def comparison(subjects, word, verdict, pairs, **members):
    return Comparison(
        schema_version=VERSION,
        tool=TOOL,
        command=members.pop("command", "diff"),
        subjects=subjects,
        word=word,
        verdict=verdict,
        pairs=pairs,
        **members,
    )


def worse():
    """A learning rate that was doubled at step 500."""
    rate = Departure(
        statistic="learning_rate",
        step=500,
        left=0.001,
        right=0.002,
        band=0.0,
        message="learning_rate is 0.002 at step 500 where the first run has 0.001; noise explains no difference",
    )
    norms = [
        Departure(
            statistic="update_ratio",
            where=f"blocks.{block}.attn.query.weight",
            step=500 + 10 * block,
            left=0.0011,
            right=0.0023,
            band=0.0002,
            message=f"update_ratio of blocks.{block}.attn.query.weight is 0.0023 where the first run has 0.0011",
        )
        for block in range(12)
    ]
    verdict = (
        "runs/b is worse than runs/a since step 500: the final loss is 2.41 against 2.1, of which noise explains 0.05; "
        "the first to part is learning_rate."
    )
    answers = [
        answer("final_loss", "worse", 2.1, 2.41, 0.05, "nats", "the final loss is 0.31 nats higher, noise explains 0.05"),
        answer("smoothed_loss", "worse", 2.12, 2.39, 0.03, "nats"),
        answer("stability", "worse", 0, 2, 0, "spikes", "two spikes more, at steps 540 and 710"),
        answer("clip_rate", "within_noise", 0.11, 0.12, 0.03),
        answer("speed", "better", 0.212, 0.190, 0.004, "s", "a step takes 10 % less time"),
        answer("memory", "same", 1_048_576, 1_048_576, 0, "bytes"),
        answer("validation_loss", "not_recorded", message="runs/b does not record val_loss"),
        answer("loss_at_equal_time", "incomparable", message="the runs are of other machines"),
        answer("steps_to_loss", "incomparable", message="the runs are of other machines"),
    ]
    unlike = [
        Unlike(
            name="environment.device",
            kind="environment",
            left="cpu",
            right="cuda",
            invalidates=["loss_at_equal_time", "speed"],
            message="The machines are not alike, so times say nothing of the change.",
        ),
        Unlike(
            name="config.learning_rate",
            kind="config",
            left="0.001",
            right=None,
            message="The learning rate differs; this may be the change under test.",
        ),
    ]
    drift = Drift(
        measure="wasserstein",
        section="weights",
        where="blocks.3.attn.query.weight",
        step=1000,
        value=0.42,
        unit="sd",
        message="weights of blocks.3.attn.query.weight are 0.42 standard deviations apart at step 1000",
    )
    steps = list(range(10, 1010, 10))
    left = [1.8 + 1.2 * 0.97**place for place in range(100)]
    right = [value + (0.0 if step <= 500 else 0.4) for step, value in zip(steps, left, strict=True)]
    right[54] = "NaN"
    loss = Curve(name="train_loss_raw", unit="nats/token", steps=steps, left=left, right=right)
    one = pair(
        "runs/a",
        "runs/b",
        "worse",
        verdict,
        curves=[loss],
        unlike=unlike,
        answers=answers,
        parting=rate,
        propagation=[rate, *norms],
        drifts=[drift],
        gained=[SPIKE],
        lost=[replace(SPIKE, severity="sev2", first_step=20, last_step=None)],
        notes=["runs/b logs every 10 steps; it was compared at the steps both have"],
    )
    return comparison(["runs/a", "runs/b"], "worse", verdict, [one], files=42)


def alike():
    """The same run twice."""
    verdict = "runs/copy is the same as runs/a in every bit."
    noise = Noise(source="identical", message="The runs agree in every bit, so noise explains nothing.")
    answers = [answer("final_loss", "same", 2.1, 2.1, 0, "nats"), answer("speed", "within_noise", 0.2, 0.201, 0.01, "s")]
    one = pair("runs/a", "runs/copy", "same", verdict, answers=answers, noise=noise)
    return comparison(["runs/a", "runs/copy"], "same", verdict, [one], files=8)


def incomparable():
    """Two runs of other vocabularies, one of which has a loss that is no number."""
    verdict = "The losses of runs/other cannot be compared with those of runs/a: the vocabularies differ."
    unlike = [
        Unlike(
            name="vocabulary",
            kind="tokenizer",
            left="50257",
            right="32000",
            invalidates=["final_loss", "smoothed_loss", "validation_loss", "loss_at_equal_tokens", "steps_to_loss"],
            message="A loss per token of another vocabulary is another quantity.",
        )
    ]
    answers = [
        answer("final_loss", "incomparable", 2.1, "NaN", unit="nats", message="the vocabularies differ"),
        answer("speed", "not_recorded", message="neither run says when its steps ended"),
    ]
    one = pair("runs/a", "runs/other", "incomparable", verdict, unlike=unlike, answers=answers)
    return comparison(["runs/a", "runs/other"], "incomparable", verdict, [one], files=8)


def several():
    """Five runs, each against the first."""
    first, *others = [f"sweep/learning-rate-{rate}" for rate in ("1e-3", "2e-3", "5e-4", "1e-2", "broken")]
    words = ("within_noise", "better", "worse", "incomparable")
    pairs = [
        pair(
            first,
            other,
            word,
            f"{other} is {word}.",
            answers=[
                answer("final_loss", word, 2.1, 2.1 + 0.2 * place, 0.05, "nats"),
                answer("speed", "within_noise", 0.2, 0.201, 0.01, "s"),
                *([answer("stability", "better", 3, 1, 0, "spikes")] if place == 1 else []),
            ],
        )
        for place, (other, word) in enumerate(zip(others, words, strict=True))
    ]
    return comparison([first, *others], "worse", f"1 of 4 runs is worse than {first}.", pairs, files=99, axis="tokens")


def gated():
    """A canary that is worse than two good runs, and slower within what is allowed."""
    found = worse()
    answers = [
        replace(each, word="worse", excused="slower by 4 %, and 10 % is allowed") if each.question == "speed" else each
        for each in found.pairs[0].answers
    ]
    pairs = [replace(found.pairs[0], left=name, right="runs/canary", answers=answers) for name in ("good/1", "good/2")]
    reason = "final_loss is 2.41 where the good runs have 2.1 (+15 %), noise explains 0.05, since step 500"
    gate = Gated(
        outcome="failed",
        reasons=[reason],
        counts=["final_loss", "health"],
        allowed={"speed": 0.1},
        expected=["config.learning_rate"],
        policy="ckaudit.toml",
    )
    return replace(
        found,
        command="gate",
        subjects=["good/1", "good/2", "runs/canary"],
        pairs=pairs,
        gate=gate,
        verdict=f"runs/canary does not pass: {reason}.",
    )


def hostile():
    """Names and messages that try to steer whatever shows them."""
    one = pair(
        HOSTILE,
        HOSTILE * 2,
        "worse",
        f"{HOSTILE} is worse.",
        unlike=[Unlike(name=HOSTILE, kind="config", left=HOSTILE, right=HOSTILE, invalidates=["speed"], message=HOSTILE)],
        answers=[
            answer("final_loss", "worse", "NaN", "Infinity", "NaN", HOSTILE, HOSTILE),
            answer(HOSTILE, "different", message=HOSTILE),
        ],
        parting=Departure(statistic=HOSTILE, where=HOSTILE, step=3, message=HOSTILE, unit=HOSTILE),
        propagation=[Departure(statistic="loss", where=HOSTILE, step=4, left="NaN", right=1.0, message=HOSTILE)],
        drifts=[Drift(measure=HOSTILE, section=HOSTILE, step=3, value=1.0, message=HOSTILE)],
        curves=[Curve(name=HOSTILE, unit=HOSTILE, steps=[1, 2], left=[1.0, None], right=["NaN", 2.0])],
        gained=[replace(SPIKE, message=HOSTILE)],
        notes=[HOSTILE],
        noise=replace(RESIDUALS, message=HOSTILE),
    )
    return comparison([HOSTILE, HOSTILE * 2], "worse", HOSTILE, [one], notes=[HOSTILE])


SAMPLES = {each.__name__: each for each in (worse, alike, incomparable, several, gated, hostile)}
