import logging
from shutil import copytree

import numpy as np
import pytest
import torch
from transformers import TrainerCallback

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import callback_base
from ckaudit.recorder.hooks.hook import Hook
from ckaudit.recorder.huggingface import RecorderCallback, loss_kind, makes_rollouts
from tests.recorder.llama import LENGTH, VOCABULARY, llama, rows, trainer
from tests.recorder.trained import assert_sound

WHOLE = {"max_steps": 20}  # the second round of the data begins after step 14
CHECKPOINTING = [
    {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"use_reentrant": reentrant}}
    for reentrant in (True, False)
]
EARLY = {"options": {"cadence": [Cadence(until=None, every=4)]}}
SHORT = {"max_steps": 5} | EARLY  # with a checkpoint of step 4
COMPILED = {"torch_compile": True, "torch_compile_backend": "aot_eager", "max_steps": 4} | EARLY


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Trainings by their arguments, each with its folder: what several tests ask for is trained once."""
    trainings = {}

    def train(arguments):
        key = repr(sorted(arguments.items()))
        if key not in trainings:
            folder = tmp_path_factory.mktemp("trained")
            made = trainer(folder / "run", folder / "out", **arguments)
            made.train()
            trainings[key] = made, folder / "run"
        return trainings[key]

    return train


@pytest.fixture
def run(tmp_path, trained, request):
    """Train, and return the trainer; the run is in `tmp_path / "run"`."""

    def train(**arguments):
        arguments = WHOLE | arguments
        parts = [part for each in arguments.values() for part in (each.values() if isinstance(each, dict) else [each])]
        is_plain = all(isinstance(part, (str, int, float)) or part is EARLY["options"]["cadence"] for part in parts)
        if is_plain and "monkeypatch" not in request.fixturenames and not (tmp_path / "run").exists():
            made, folder = trained(arguments)
            if folder.exists():
                copytree(folder, tmp_path / "run")
            return made
        made = trainer(tmp_path / "run", tmp_path / "out", **arguments)
        made.train()
        return made

    return train


@pytest.fixture
def merged(lines, tmp_path):
    """Return the values of each step, all its lines together."""

    def read():
        found = {}
        for line in lines(tmp_path / "run"):
            found.setdefault(line["step"], {}).update(line)
        return found

    return read


def logged(made, name):
    return {entry["step"]: entry[name] for entry in made.state.log_history if name in entry}


@pytest.mark.parametrize(
    "arguments", [{}, *({"max_steps": 6} | each for each in ({"bf16": True, "max_grad_norm": 0.0}, *CHECKPOINTING))]
)
def test_training_is_bit_identical_with_and_without(run, manifest, tmp_path, arguments):
    bare, recorded = run(recorded=False, **arguments), run(**arguments)
    pairs = zip(bare.model.parameters(), recorded.model.parameters(), strict=True)
    assert all(torch.equal(one, other) for one, other in pairs)
    assert logged(bare, "loss") == logged(recorded, "loss")
    assert (manifest(tmp_path / "run").sessions[-1].write_errors, manifest(tmp_path / "run").sessions[-1].look_errors) == (0, 0)
    hooks = [h for m in recorded.model.modules() for h in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())]
    assert not [hook for hook in hooks if isinstance(hook, Hook)]
    assert not any(p._post_accumulate_grad_hooks for p in recorded.model.parameters())


def test_gradients_are_those_before_clipping(run, merged, read, tmp_path):
    made = run()
    checkpoint, norms = read(tmp_path / "run", 10), made.seen[10]["norms"]
    assert checkpoint.gradients_source == "pre_clip"
    assert checkpoint.gradients.keys() == norms.keys()
    for name, stats in checkpoint.gradients.items():
        assert stats.norm == pytest.approx(norms[name], rel=1e-5)
    total = np.linalg.norm([*norms.values()])
    assert total > 0.5
    assert checkpoint.optimizer.clip_coefficient == pytest.approx(0.5 / total, rel=1e-5)
    for step, norm in logged(made, "grad_norm").items():
        assert merged()[step]["grad_global_norm"] == pytest.approx(norm, rel=1e-5)
    assert merged()[10]["grad_carried_over"] == merged()[20]["grad_carried_over"] == 0.0


def test_loss_and_learning_rate_are_the_steps_own_under_accumulation(run, merged):
    made = run()
    sizes = {step: len(note["inputs"]) for step, note in made.seen.items()}
    assert set(sizes.values()) == {1, 2}
    for step, loss in logged(made, "loss").items():
        assert merged()[step]["train_loss_raw"] == pytest.approx(loss, rel=1e-6)
        assert merged()[step]["learning_rate"] == pytest.approx(logged(made, "learning_rate")[step])
        assert merged()[step]["epoch"] == pytest.approx(logged(made, "epoch")[step], abs=1e-6)


def test_the_batch_is_what_the_model_saw(run, read, tmp_path):
    made = run()
    data = read(tmp_path / "run", 10).data
    tokens = torch.cat([inputs["input_ids"] for inputs in made.seen[10]["inputs"]])
    assert data.target_shift_match == 1.0
    assert data.target_equals_input == 0.0
    assert data.token_histogram == np.bincount(tokens.flatten().numpy(), minlength=VOCABULARY).tolist()


def test_the_facts_of_the_run_come_from_the_trainer(run, merged, manifest, tmp_path):
    run(options={"sequence_length": LENGTH, "name": "mine"}, max_steps=12)
    found = manifest(tmp_path / "run")
    assert (found.seed, found.vocabulary, found.sequence_length, found.name) == (3, VOCABULARY, LENGTH, "mine")
    assert (found.warmup_steps, found.planned_steps, found.clip_norm) == (5, 12, 0.5)
    assert found.config["gradient_accumulation_steps"] == 2
    assert found.model["num_key_value_heads"] == 2
    assert found.tensors["lm_head.weight"].tied_to == "model.embed_tokens.weight"
    planned = np.array(found.planned_learning_rate)
    for step, values in merged().items():
        assert values["learning_rate"] == pytest.approx(np.interp(step, *planned.T), abs=1e-12)


def test_a_long_plan_keeps_its_corner():
    from ckaudit.recorder.huggingface import planned_learning_rate

    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=2.0)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: min(done / 777, (9_000 - done) / (9_000 - 777)))
    planned = planned_learning_rate(scheduler, 9_000, 777)
    assert len(planned) < 300
    assert [778, 2.0] in planned
    assert planned_learning_rate(torch.optim.lr_scheduler.StepLR(optimizer, 3), 10, 0) is None


def test_attention_is_that_of_the_model(run, read, tmp_path, monkeypatch):
    monkeypatch.setattr("tests.recorder.llama.WitnessTrainer.notes_attention", True)
    made = run(gradient_accumulation_steps=1, max_steps=10)
    for layer, probabilities in enumerate(made.seen[10]["attention"]):
        stats = read(tmp_path / "run", 10).attention[f"layer.{layer}"]
        p = probabilities.double().numpy()
        entropy = -(p * np.log(np.where(p > 0, p, 1))).sum(-1).mean((0, 2))
        assert stats.entropy_per_head == pytest.approx(entropy.tolist(), rel=1e-5)
        assert (stats.heads, stats.kv_heads, stats.keys, stats.causal) == (4, 2, LENGTH, True)


@pytest.mark.parametrize("config", [{"attention": "sdpa"}, {"attention_dropout": 0.1}])
def test_attention_is_the_same_where_it_is_fused_or_dropped(run, read, tmp_path, config):
    options = {"options": {"cadence": [Cadence(until=None, every=1)]}}
    run(max_steps=1, **options)
    plain = read(tmp_path / "run", 1).attention["layer.0"]
    run(model=llama(**config), max_steps=1, **options)
    found = read(tmp_path / "run", 1).attention["layer.0"]
    assert found.entropy_per_head == pytest.approx(plain.entropy_per_head, rel=1e-5)
    assert found.max_logit_per_head == pytest.approx(plain.max_logit_per_head, rel=1e-4)
    assert found.kind_per_head == plain.kind_per_head


@pytest.mark.parametrize("arguments", CHECKPOINTING)
def test_a_recomputed_forward_pass_counts_once(run, read, tmp_path, arguments):
    run(**SHORT)
    plain = read(tmp_path / "run", 4)
    (tmp_path / "run").rename(tmp_path / "plain")
    made = run(**SHORT, **arguments)
    recomputed = read(tmp_path / "run", 4)
    assert recomputed.activations == plain.activations
    assert recomputed.attention == plain.attention
    assert recomputed.loss == plain.loss
    assert {n: s.norm for n, s in recomputed.gradients.items()} == pytest.approx(made.seen[4]["norms"], rel=1e-5)


@pytest.mark.parametrize("arguments", [{}, *CHECKPOINTING])
def test_frozen_parameters_have_no_gradient(run, read, manifest, tmp_path, arguments):
    model = llama(tie_word_embeddings=False)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("q_proj" in name)
    model.enable_input_require_grads()
    made = run(model=model, **arguments, **SHORT)
    gradients = read(tmp_path / "run", 4).gradients
    assert [*gradients] == [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in (0, 1)]
    assert {name: stats.norm for name, stats in gradients.items()} == pytest.approx(made.seen[4]["norms"], rel=1e-5)
    assert manifest(tmp_path / "run").parameters == 2 * 32 * 32


def test_a_compiled_model_is_not_hooked_and_says_so(run, read, merged, manifest, tmp_path, caplog):
    bare = run(model=llama(attention="sdpa", num_hidden_layers=1), recorded=False, **COMPILED)
    made = run(model=llama(attention="sdpa", num_hidden_layers=1), **COMPILED)
    assert all(map(torch.equal, bare.model.parameters(), made.model.parameters()))
    checkpoint = read(tmp_path / "run", 4)
    assert not checkpoint.activations
    assert checkpoint.gradients_source == "pre_clip"
    assert {name: stats.norm for name, stats in checkpoint.gradients.items()} == pytest.approx(made.seen[4]["norms"], rel=1e-5)
    assert merged()[3]["train_loss_raw"] == logged(made, "loss")[3]
    assert "compiled" in caplog.text
    assert (manifest(tmp_path / "run").sessions[-1].write_errors, manifest(tmp_path / "run").sessions[-1].look_errors) == (0, 0)


def test_a_loss_from_outside_the_model_is_the_one_that_the_trainer_logs(run, read, merged, tmp_path):
    made = run(label_smoothing_factor=0.1, logging_steps=5, max_steps=15)
    assert {step for step, values in merged().items() if "train_loss_raw" in values} == {5, 10, 15}
    assert merged()[15]["train_loss_raw"] == logged(made, "loss")[15]
    norms = {name: stats.norm for name, stats in read(tmp_path / "run", 10).gradients.items()}
    assert norms == pytest.approx(made.seen[10]["norms"], rel=1e-5)


def test_a_scaled_loss_is_measured_unscaled(run, read, tmp_path):
    run(**SHORT, max_grad_norm=0.0)
    plain = read(tmp_path / "run", 4)
    made = trainer(tmp_path / "run", tmp_path / "out", **SHORT, max_grad_norm=0.0)
    made.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    made.train()
    scaled = read(tmp_path / "run", 4)
    assert scaled.optimizer.loss_scale == 1024.0
    assert scaled.loss == pytest.approx(plain.loss, rel=1e-5)
    for name, stats in scaled.gradients.items():
        assert stats.norm == pytest.approx(plain.gradients[name].norm, rel=1e-4)


def test_evaluations_belong_to_the_step_before_them(run, merged):
    made = run(evaluated=rows(8), eval_on_start=True, eval_steps=4, max_steps=12)
    assert [*logged(made, "eval_loss")] == [0, 4, 8, 12]
    for step, loss in logged(made, "eval_loss").items():
        assert merged()[step]["val_loss"] == loss


def test_evaluations_of_named_sets_are_slices(run, merged):
    made = run(evaluated={"odd": rows(8)[::2], "even": rows(8)[1::2]}, include_num_input_tokens_seen="all", max_steps=10)
    for name in ("odd", "even"):
        assert merged()[10][f"slice_val_loss/{name}"] == logged(made, f"eval_{name}_loss")[10]
    assert "val_loss" not in merged()[10]
    assert merged()[10]["tokens_seen"] == sum(x["input_ids"].numel() for s in range(1, 11) for x in made.seen[s]["inputs"])


def test_the_set_named_all_is_the_whole_evaluation(run, merged):
    made = run(evaluated={"all": rows(8), "odd": rows(8)[::2]}, max_steps=10)
    assert merged()[10]["val_loss"] == logged(made, "eval_all_loss")[10]
    assert merged()[10]["slice_val_loss/odd"] == logged(made, "eval_odd_loss")[10]
    assert "slice_val_loss/all" not in merged()[10]


def test_a_resume_goes_on_with_the_folder(run, merged, manifest, tmp_path):
    whole = run()
    expected = {step: values["train_loss_raw"] for step, values in merged().items()}
    saving = {"save_strategy": "steps", "save_steps": 12}
    made = trainer(tmp_path / "again", tmp_path / "out", **WHOLE, **saving, callbacks=[StopAt(14)])
    made.train()
    made = trainer(tmp_path / "again", tmp_path / "out", **WHOLE)
    made.train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-12"))
    assert all(map(torch.equal, whole.model.parameters(), made.model.parameters()))
    (tmp_path / "run").rename(tmp_path / "first")
    (tmp_path / "again").rename(tmp_path / "run")
    assert [session.resumed_from for session in manifest(tmp_path / "run").sessions][1:] == [12]
    assert {step: values["train_loss_raw"] for step, values in merged().items()} == pytest.approx(expected, rel=1e-5)
    assert merged()[20]["steps_seen"] == 20
    assert_sound(tmp_path / "run", judged=5)


class StopAt(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = control.should_training_stop or state.global_step == self.step


def test_the_last_checkpoint_is_of_the_last_step_and_not_of_the_best(run, read, tmp_path):
    norms = {}

    class Norms(TrainerCallback):
        def on_step_end(self, args, state, control, model=None, **kwargs):
            norms[state.global_step] = float(model.model.norm.weight.detach().double().norm())

    saving = {"save_strategy": "steps", "save_steps": 4, "load_best_model_at_end": True, "greater_is_better": True}
    run(evaluated=rows(8), eval_steps=4, callbacks=[Norms(), StopAt(16)], **saving)
    assert read(tmp_path / "run", 16).triggers == ["last"]
    assert read(tmp_path / "run", 16).weights["model.norm.weight"].frobenius_norm == pytest.approx(norms[16], rel=1e-6)


@pytest.mark.parametrize(("max_norm", "source"), [(0.5, "post_clip"), (50.0, "rescaled")])
def test_where_autograd_does_not_tell_the_end_gradients_are_read_after_clipping(
    run, read, tmp_path, monkeypatch, caplog, max_norm, source
):
    def fail(_call):
        raise RuntimeError("no such thing")

    monkeypatch.setattr(callback_base, "after_backward", fail)
    made = run(max_grad_norm=max_norm, **SHORT)
    checkpoint, norms = read(tmp_path / "run", 4), made.seen[4]["norms"]
    assert checkpoint.gradients_source == source
    factor = min(1.0, max_norm / np.linalg.norm([*norms.values()]))
    assert (factor < 1.0) == (source == "post_clip")
    assert checkpoint.gradients["model.norm.weight"].norm == pytest.approx(factor * norms["model.norm.weight"], rel=1e-4)
    assert caplog.text.count("no such thing") == 1


@pytest.mark.usefixtures("no_waits")
def test_nothing_of_the_recorder_reaches_the_training(run, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.WARNING, "ckaudit.recorder")
    bare = run(recorded=False, **SHORT)
    (tmp_path / "run").touch()
    monkeypatch.setattr("ckaudit.recorder.huggingface.batch_of", None)
    monkeypatch.setattr("ckaudit.recorder.huggingface.planned_learning_rate", None)
    made = run(evaluated=rows(4), **SHORT)
    assert all(map(torch.equal, bare.model.parameters(), made.model.parameters()))
    assert "the fact planned_learning_rate" in caplog.text


@pytest.mark.parametrize("wrong", [{"vocabluary": 3}, {"grids": "jpeg"}])
def test_an_option_that_cannot_be_meant_raises_at_once(tmp_path, wrong):
    with pytest.raises((TypeError, ValueError)):
        RecorderCallback(tmp_path, **wrong)


def test_a_recorded_training_is_sound(run, tmp_path):
    run(max_steps=40, evaluated=rows(8), options={"cadence": [Cadence(until=None, every=5)]})
    assert_sound(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("LlamaForCausalLM", "nats_per_token"),
        ("GPT2LMHeadModel", "nats_per_token"),
        ("BertForMaskedLM", "nats_per_token"),
        ("T5ForConditionalGeneration", "nats_per_token"),
        ("MarianMTModel", "nats_per_token"),
        ("Wav2Vec2ForCTC", "other"),
        ("BertForQuestionAnswering", "other"),
        ("SegformerForSemanticSegmentation", "other"),
        ("CLIPModel", "other"),
        ("ViTMAEForPreTraining", "other"),
        ("Transformer", None),
        ("MySegFormerModel", None),
    ],
)
def test_the_class_of_a_model_names_the_unit_of_its_loss(name, expected):
    assert loss_kind(type(name, (torch.nn.Module,), {})()) == expected


def test_a_trainer_of_preferences_has_no_loss_of_tokens():
    model = type("LlamaForCausalLM", (torch.nn.Module,), {})()
    trainers = {name: type(name, (), {"__module__": "trl.trainer.of_" + name})() for name in ("DPOConfig", "SFTConfig")}
    assert [loss_kind(model, trainer) for trainer in trainers.values()] == ["other", "nats_per_token"]


@pytest.mark.parametrize(
    ("module", "facts", "expected"),
    [
        ("trl.trainer.grpo_config", {"temperature": 1.0}, True),
        ("trl.trainer.dpo_config", {"beta": 0.1}, False),
        ("transformers.training_args", {"temperature": 1.0}, False),
    ],
)
def test_a_trainer_that_lets_its_model_write_learns_by_reinforcement(module, facts, expected):
    assert makes_rollouts(type("Config", (), {"__module__": module, **facts})()) is expected


SEEN_ROWS = "held_out_rows_trained_on"


def sequences(count, *, seed):
    """Return long rows, no two alike, of which hardly any comes twice."""
    tokens = torch.randint(0, VOCABULARY, (count, 40), generator=torch.Generator().manual_seed(seed))
    return [{"input_ids": row, "labels": row.clone()} for row in tokens]


class EvaluatesByItself(TrainerCallback):
    """Shows the model rows of the training at every step, as one that logs an accuracy of the training does."""

    def __init__(self, data):
        self._batch = torch.stack([row["input_ids"] for row in data])

    def on_step_end(self, _args, _state, _control, *, model, **_):
        model.eval()
        with torch.no_grad():
            model(input_ids=self._batch, labels=self._batch)
        model.train()


@pytest.mark.parametrize(("name", "shared"), [("eval", 0), ("eval", 6), ("train", 6), ("held", 6)])
def test_rows_of_an_evaluation_are_held_out_unless_the_set_is_named_for_training(merged, tmp_path, name, shared):
    fresh, data = sequences(8, seed=2), sequences(12, seed=1)
    held = data[:shared] + fresh[shared:]
    made = trainer(
        tmp_path / "run",
        tmp_path / "out",
        data=data,
        evaluated=held if name == "eval" else {name: held},
        callbacks=[EvaluatesByItself(data)],
        options={"cadence": [Cadence(until=None, every=1)]},
        max_steps=12,
        eval_steps=4,
    )
    made.train()
    met = {step: values[SEEN_ROWS] for step, values in merged().items() if SEEN_ROWS in values}
    if name == "train":
        assert met == {}
    else:
        assert min(met) == 5  # from the first evaluation on
        assert met[12] == 100 * shared / 8  # each row of the training was met by then
