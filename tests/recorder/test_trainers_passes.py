import copy
import io
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import transformers
from torch import nn

from ckaudit.recorder.callback_base import ForwardPass, PassWatch
from ckaudit.recorder.guard import Guard
from ckaudit.recorder.huggingface import batch_of, step_loss


class Model(nn.Module):
    def __init__(self, put_out=None):
        super().__init__()
        self.layers, self.head = nn.ModuleList([nn.Linear(3, 3)]), nn.Linear(3, 1)
        self.put_out = put_out or (lambda loss, logits: {"loss": loss, "logits": logits})

    def forward(self, *, x):
        logits = self.head(self.layers[0](x))
        return self.put_out(logits.pow(2).mean(), logits)


def watched(model, **options):
    ends = []
    guard = Guard()
    watch = PassWatch(model, guard, lambda: ends.append([p.grad.clone() for p in model.parameters()]), **options)
    return watch, ends, guard


def test_a_pass_has_its_inputs_its_loss_and_what_it_was_multiplied_by():
    model, x = Model(), torch.ones(2, 3)
    watch, ends, guard = watched(model)
    losses = [model(x=x)["loss"], model(x=2 * x)["loss"]]
    (losses[0] * 8 / 2).backward()
    (losses[1] * 8 / 2).backward()
    taken = watch.take()
    assert [each.inputs["x"].mean().item() for each in taken] == [1.0, 2.0]
    assert step_loss(taken, scale=8.0).item() == pytest.approx((losses[0] + losses[1]).item() / 2, rel=1e-6)
    assert len(ends) == 2
    assert watch.take() == []
    assert step_loss([], 1.0) is None
    assert guard.failures == 0


def test_passes_that_are_not_differentiated_leave_nothing():
    model = Model()
    watch, ends, _ = watched(model)
    model(x=torch.ones(1, 3))
    with torch.no_grad():
        model(x=torch.ones(1, 3))
    assert (watch.take(), ends) == ([], [])


@pytest.mark.parametrize(
    ("put_out", "loss_is_known"),
    [(lambda loss, logits: (loss, logits), True), (lambda loss, logits: loss, True), (lambda loss, logits: (logits,), False)],
)
def test_any_form_of_output_is_understood(put_out, loss_is_known):
    model = Model(put_out)
    watch, ends, guard = watched(model)
    output = model(x=torch.ones(2, 3))
    (output[0] if isinstance(output, tuple) else output).sum().backward()
    assert len(watch.take()) == loss_is_known
    assert all(map(torch.equal, ends[0], [p.grad for p in model.parameters()]))
    assert guard.failures == 0


def test_a_backward_pass_that_fails_does_not_silence_the_next():
    model = Model()
    watch, ends, _ = watched(model)
    handle = model.layers[0].weight.register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(x=torch.ones(2, 3))["loss"].backward()
    watch.take()
    handle.remove()
    model(x=torch.ones(2, 3))["loss"].backward()
    assert len(ends) == 1


@pytest.mark.parametrize("hooks", [True, False])
def test_the_end_comes_after_the_averaging_over_ranks(tmp_path, hooks):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        model = Model()
        _, ends, _ = watched(model, hooks=hooks)
        parallel = nn.parallel.DistributedDataParallel(model)
        parallel.register_comm_hook(None, triple)
        parallel(x=torch.ones(2, 3))["loss"].backward()
        plain = copy.deepcopy(model)
        plain.zero_grad()
        plain(x=torch.ones(2, 3))["loss"].backward()
        for seen, alone in zip(ends[-1], plain.parameters(), strict=True):
            torch.testing.assert_close(seen, 3 * alone.grad)
    finally:
        dist.destroy_process_group()


def triple(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Stand for the average over ranks with something that one rank alone shows."""
    future = torch.futures.Future()
    future.set_result(bucket.buffer() * 3)
    return future


def test_a_copied_or_saved_model_is_not_watched():
    model = Model()
    model.put_out = dict_of
    watch, ends, _ = watched(model)
    stream = io.BytesIO()
    torch.save(model, stream)
    stream.seek(0)
    for other in (copy.deepcopy(model), torch.load(stream, weights_only=False)):
        other(x=torch.ones(2, 3))["loss"].backward()
    assert (watch.take(), ends) == ([], [])


def dict_of(loss, logits):
    return {"loss": loss, "logits": logits}


def test_micro_batches_of_different_lengths_become_one_row():
    model = Model()
    model.loss_type = "ForCausalLM"
    rows = [torch.arange(6).reshape(2, 3), torch.arange(4).reshape(1, 4)]
    passes = [ForwardPass({"input_ids": row, "labels": row}, torch.zeros(()), torch.ones(())) for row in rows]
    inputs, targets = batch_of(passes, model)
    assert inputs.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]
    assert targets.tolist() == [1, 2, -100, 4, 5, -100, 1, 2, 3, -100]
    assert batch_of([ForwardPass({}, torch.zeros(()), torch.ones(()))], model) is None


def test_targets_that_are_shifted_already_stay_and_those_of_other_models_are_left_out():
    row = torch.arange(4).reshape(1, 4)
    shifted = ForwardPass({"input_ids": row, "shift_labels": row + 1, "labels": row}, torch.zeros(()), torch.ones(()))
    assert batch_of([shifted], Model())[1].tolist() == [[1, 2, 3, 4]]
    plain = ForwardPass({"input_ids": row, "labels": row}, torch.zeros(()), torch.ones(()))
    assert batch_of([plain], Model())[1] is None


GPT = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8}
LLAMA = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
XLNET = {"d_model": 8, "n_layer": 1, "n_head": 2, "d_head": 4, "d_inner": 16}


@pytest.mark.parametrize(
    ("name", "sizes", "seen"),
    [
        ("GPT2LMHeadModel", GPT | {"bos_token_id": 0, "eos_token_id": 0}, True),
        ("OpenAIGPTLMHeadModel", GPT, True),
        ("LlamaForCausalLM", LLAMA, True),
        ("XLNetLMHeadModel", XLNET, False),
    ],
)
def test_targets_are_those_that_the_loss_of_the_model_sees(name, sizes, seen):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(vocab_size=11, **sizes)).eval()
    tokens = torch.randint(11, (2, 6))
    labels = tokens.clone()
    labels[0, 3] = -100
    found = model(input_ids=tokens, labels=labels)
    _, targets = batch_of([ForwardPass({"input_ids": tokens, "labels": labels}, torch.zeros(()), torch.ones(()))], model)
    assert (targets is not None) is seen
    if seen:
        expected = nn.functional.cross_entropy(found.logits.flatten(0, 1), targets.flatten())
        assert found.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_recorder_itself_needs_no_trainer():
    program = (
        "import sys\nfrom ckaudit.recorder import Recorder\nloaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'torch', 'transformers', 'lightning', 'pytorch_lightning', 'accelerate'}))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "['torch']\n"
