"""What coverage prints to users of the Hugging Face Trainer is executed, and keeps what it promises."""

import re

import pytest

from ckaudit.audit.coverage.recorded import coverage
from ckaudit.metrics import metrics
from ckaudit.run.read import read_run
from tests.audit.test_promises import unkept

pytest.importorskip("transformers")

FILLED = {
    "sequence_length=...": "sequence_length=31",
    "flops_per_token=...": "flops_per_token=6e3",
    "peak_flops=...": "peak_flops=1e11",
}
ARGUMENTS, BEFORE = "Beside what the arguments hold", "Once, before trainer.train()"
MADE, SETS, TWO = "Where the callback is made", "Each set becomes", "The sets of regular"
EVERY, BEGUN, EVALUATED, LATER = "In any event", "In on_step_begin", "In on_evaluate", "In an event"
VALIDATES = "With an eval_dataset"
PLACES = (ARGUMENTS, BEFORE, MADE, SETS, TWO, EVERY, BEGUN, EVALUATED, LATER, VALIDATES)
BEST = {"load_best_model_at_end": True, "save_strategy": "steps", "save_steps": 10, "save_total_limit": 1}


def options_of(code, head, **names):
    """Return the keywords of a printed call, its dots left out."""
    return (
        eval(re.sub(r"^\w+\(\.\.\., ", "dict(", code).replace("TrainingArguments(..., ", "dict("), names) if head in code else {}
    )


def trained(folder, *, callback=None, own=(), evaluated=None, **arguments):
    """Train, and return the path of the trainer's state."""
    from tests.recorder.llama import rows, trainer

    callbacks = [*own, *([callback] if callback else [])]
    sets = evaluated or rows(8)
    made = trainer(
        folder / "run",
        folder / "out",
        recorded=False,
        evaluated=sets,
        callbacks=callbacks,
        gradient_accumulation_steps=1,
        weight_decay=0.01,
        **arguments,
    )
    made.train()
    made.state.save_to_json(str(folder / "trainer_state.json"))
    return folder / "trainer_state.json"


def follower(lines, callback):
    """Return a callback of a user's own that executes lines in the events that they name."""
    from transformers import TrainerCallback

    from tests.recorder.llama import rows

    class Own(TrainerCallback):
        def follow(self, *places, **names):
            for line in (each for place in places for each in lines.get(place, ())):
                exec(line.replace("...", "2.0"), {"callback": callback, "count": 1} | names)

        def on_step_begin(self, _args, state, _control, model=None, **_):
            batch = {name: value[None] for name, value in rows(1)[0].items()}
            for line in lines.get(BEGUN, ()) if state.global_step % 5 == 0 else ():
                exec(line.replace("...", "model(**batch).loss"), {"callback": callback, "model": model, "batch": batch})
            self.follow(EVERY)

        def on_evaluate(self, *_, **__):
            self.follow(EVALUATED, LATER)

    return Own()


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return what coverage says of a log without any callback of ours."""
    return coverage(trained(tmp_path_factory.mktemp("bare")))


@pytest.fixture(scope="module")
def recorded(log, tmp_path_factory):
    """Return the run of a training that followed the first program alone."""
    folder = tmp_path_factory.mktemp("callback")
    names = {}
    (program,) = [each for each in log.remedies if len(each.lines) > 1]
    exec("\n".join(line.code for line in program.lines[:2]).replace('"run/"', repr(str(folder / "run"))), names)
    trained(folder, callback=names["callback"])
    return folder / "run"


def test_the_callback_alone_lets_judge_all_that_it_promises(log, recorded):
    (program,) = [each for each in log.remedies if len(each.lines) > 1]
    by_itself = {"repeated_batch", "token_drift", "initial_loss_off", "dropout_rate_high", "schedule_off_plan"}
    assert by_itself <= {*program.waiting}
    assert not unkept(program.waiting, recorded)
    assert not [each.name for each in log.waiting if not each.places]


def test_the_other_lines_keep_their_promises(recorded, tmp_path):
    from ckaudit.recorder.huggingface import RecorderCallback
    from tests.recorder.llama import rows

    found = coverage(recorded)
    python = [each for each in found.remedies if each.lines and not each.code.startswith("ckaudit")]
    lines, code = {}, " ".join(each.code for each in python)
    for each in python:
        lines.setdefault(next(place for place in PLACES if each.where.startswith(place)), []).append(each.code)
    for dots, value in FILLED.items():
        assert dots in code
        lines[MADE] = [line.replace(dots, value) for line in lines[MADE]]
    made = [options_of(line, "RecorderCallback") for line in lines[MADE]]
    callback = RecorderCallback(tmp_path / "run", **{name: value for each in made for name, value in each.items()})
    batch = {name: value[None] for name, value in rows(1)[0].items()}
    for line in lines[BEFORE]:
        exec(line, {"callback": callback, "batch": batch})
    arguments = options_of(lines[ARGUMENTS][0], "TrainingArguments")
    names = {"everything": rows(8), "part": rows(4)}
    sets = {
        name: each
        for place in (SETS, TWO)
        for line in lines[place]
        for name, each in options_of(line, "eval_dataset", **names)["eval_dataset"].items()
    }
    trained(tmp_path, callback=callback, own=[follower(lines, callback)], evaluated=sets, **arguments)
    numbers = {found.remedies.index(each) + 1 for each in python}
    promised = [each.name for each in found.waiting if each.places and {*each.places} <= numbers]
    assert {"probe_jump", "curvature_jump", "slice_regression", "spectral_norm_runaway", "tokens_stand_still"} <= {*promised}
    assert not unkept(promised, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert not [name for each in python for name in each.names if not metrics()[name](run)]
    assert run.manifest.trainer == "huggingface"
    assert (run.manifest.sessions[-1].write_errors, run.manifest.sessions[-1].look_errors) == (0, 0)


@pytest.mark.parametrize("metric", [None, "eval_loss"])
def test_several_sets_go_with_the_best_model(metric, tmp_path):
    from tests.recorder.llama import rows

    (tmp_path / "one").mkdir()
    found = coverage(trained(tmp_path / "one", metric_for_best_model=metric, **BEST))
    (slices,) = [each for each in found.remedies if "slice_val_loss" in each.names]
    options = options_of(slices.code, "eval_dataset", everything=rows(8), part=rows(4))
    assert options["args"] == {"metric_for_best_model": "eval_all_loss"}
    with pytest.raises(KeyError, match="eval_loss"):
        trained(tmp_path / "sets", evaluated=options["eval_dataset"], metric_for_best_model=metric, **BEST)
    (tmp_path / "told").mkdir()
    state = trained(tmp_path / "told", evaluated=options["eval_dataset"], **options["args"], **BEST)
    assert "slice_regression" not in {each.name for each in coverage(state).waiting}


def test_the_states_own_metric_is_named():
    from tests.audit.test_instrumentation import WHISPER

    (slices,) = [each for each in coverage(WHISPER).remedies if "slice_val_loss" in each.names]
    assert 'metric_for_best_model="eval_all_wer"' in slices.code
    assert "With load_best_model_at_end" in slices.where
