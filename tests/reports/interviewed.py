"""A report with an interview: every word for an answer, and a name that means no good."""

from msgspec.structs import replace

from ckaudit.contract.schema.report import Answer, Phase, Pointer, Report
from tests.reports.sample import HOSTILE, ill


def interviewed() -> Report:
    """A run that was asked some questions, with every word for an answer, and a name that means no good."""
    text = "GRAD001 from step 200: blocks.0 gets 512x less gradient; the likeliest cause is residual_path_broken. "
    text += "At step 600 it is 130x"
    stability = Phase(
        number=4,
        title="Is it stable?",
        answers=[
            Answer(
                id="D4.2",
                question="Does the gradient vanish?",
                word="bad",
                sentence=text,
                numbers={"ratio": 130.0},
                findings=["GRAD001"],
                causes=["residual_path_broken"],
            ),
            Answer(id="D4.3", question="Does the gradient explode?", word="good", sentence="1.2x its lowest"),
            Answer(id="D4.5", question="Are the activations healthy?", word="watch", sentence=f"1.7x in {HOSTILE}"),
            Answer(
                id="D4.4",
                question="Does clipping hide a cause?",
                word="not_recorded",
                sentence="needs grad_clip_rate",
                missing=["grad_clip_rate"],
            ),
            Answer(id="D4.6", question="Is the schedule right?", word="not_applicable", sentence="the rate is always zero"),
        ],
        pointers=[Pointer(id="MAP-5", question="What went wrong?", command="ckaudit triage 'runs/a b' -v")],
    )
    ready = Phase(
        number=6,
        title="Is it ready for what comes next?",
        answers=[
            Answer(id="D6.2", question="Should it start?", word="not_recorded", sentence="needs a score", missing=["score"])
        ],
        verdict="Whether it is ready cannot be said. For it: nothing; against it: nothing; not recorded: all of it.",
        pointers=[
            Pointer(
                id="MAP-7", question="Is it ready?", command="ckaudit coverage 'runs/a b'", why="nothing of score is recorded"
            )
        ],
    )
    return replace(ill(), subject="runs/a b", interview=[stability, ready])
