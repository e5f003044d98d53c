"""What the recorder of a drill does to a training: each fault held against plain arithmetic, and an end after so many steps."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from ckaudit.recorder import Recorder
from ckaudit.recorder.drill import damage, session
from ckaudit.recorder.drill.faults import FAULT_ACTIONS
from ckaudit.recorder.drill.settings import KINDS, DrillSettings, DrillStatus, read_status

STEPS, ONSET = 12, 5


class Drilled:
    """A training on sixteen rows under the settings of a drill, and what it looked like at every step.

    Attributes:
        weights: All weights after each step, by parameter.
        lines: The line of each step.
        note: What the recorder noted.
        batches: What the loader gave in training.
    """

    def __init__(
        self,
        tmp_path: Path,
        fault: str,
        *,
        onset: int = ONSET,
        rate: float = 0.1,
        momentum: float = 0.9,
        adam: bool = False,
        bare: bool = False,
    ) -> None:
        self.folder = tmp_path / "drilled"
        settings = DrillSettings(folder=str(self.folder), steps=STEPS, fault=fault, onset=onset)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.as_environment().items():
                patch.setenv(name, value)
            patch.setattr(session, "_BEGUN", [])
            patch.setattr(_BaseDataLoaderIter, "__next__", _BaseDataLoaderIter.__next__)
            torch.manual_seed(0)
            self.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
            kinds: Callable[..., torch.optim.Optimizer] = torch.optim.AdamW if adam else torch.optim.SGD
            self.optimizer = kinds(self.model.parameters(), lr=rate, **({} if adam else {"momentum": momentum}))
            self._is_bare = bare
            self.weights: list[list[Tensor]] = []
            self.batches: list[tuple[Tensor, Tensor]] = []
            self.validated: list[Tensor] = []
            with pytest.raises(SystemExit) as left:
                self._train(tmp_path / "real")
        self.random = torch.get_rng_state()
        assert left.value.code == 0
        assert not (tmp_path / "real").exists()
        note = read_status(self.folder)
        assert note is not None
        self.note: DrillStatus = note
        log = self.folder / "scalars.jsonl"
        rows: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        self.lines = [row for row in rows if "steps_seen" in row]

    def _train(self, folder: Path) -> None:
        source = torch.Generator().manual_seed(1)
        x = torch.randn(64, 4, generator=source)
        loader = DataLoader(TensorDataset(x, (x[:, 0] > 0).long()), batch_size=16)
        recorder = Recorder(self.model, folder, optimizer=None if self._is_bare else self.optimizer)
        while True:
            for inputs, targets in loader:
                self.batches.append((inputs, targets))
                loss = nn.functional.cross_entropy(self.model(inputs), targets)
                self.optimizer.zero_grad()
                loss.backward()
                if not self._is_bare:
                    recorder.after_backward()
                self.optimizer.step()
                self.weights.append([weight.detach().clone() for weight in self.model.parameters()])
                recorder.step(loss, batch=(inputs, targets))
            with torch.no_grad():
                self.validated += [inputs for inputs, _ in loader]

    def column(self, name: str) -> list[float]:
        """Return the values of one scalar, a step each."""
        return [float(line[name]) for line in self.lines]


@pytest.fixture
def healthy(tmp_path: Path) -> Drilled:
    return Drilled(tmp_path / "healthy", "")


def test_a_healthy_drill_is_the_training_itself_cut_short(
    tmp_path: Path, healthy: Drilled, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (len(healthy.lines), healthy.note) == (STEPS, DrillStatus(done=STEPS, is_over=True))
    assert json.loads((healthy.folder / "run.json").read_text())["sessions"][0]["end"] > 0
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.0), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for inputs, targets in healthy.batches:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert healthy.column("train_loss_raw") == pytest.approx(losses, rel=1e-6)


def test_every_fault_has_a_way_and_is_done_or_says_why_not(tmp_path: Path) -> None:
    assert {*FAULT_ACTIONS} == {*KINDS}
    refused = {
        "norms_missing": "the model has no normalisation",
        "epsilon_too_large": "the optimizer has no eps",
        "left_in_evaluation_mode": "the model has no batch normalization",
        "causal_masks_dropped": "the model has no attention module that is handed a causal mask",
    }
    for name, kind in KINDS.items():
        found = Drilled(tmp_path / name, name).note
        assert found.why_not == refused.get(name, ""), name
        onset = ONSET if kind.sudden else 1
        # The batch of the onset is given again one step later.
        assert found.acted == (None if name in refused else onset + (name == "loader_stuck")), name
        assert bool(found.place) == kind.place, name


@pytest.mark.parametrize(
    ("name", "factor", "since"),
    [
        ("rate_raised", math.sqrt(500), ONSET),
        ("rate_dropped", 0, ONSET),
        ("rate_too_low", 1e-3, 1),
        ("rate_too_high", 1e3**0.5, 1),
    ],
)
def test_rates_are_multiplied_around_updates_alone(tmp_path: Path, name: str, factor: float, since: int) -> None:
    found = Drilled(tmp_path, name)
    assert found.column("learning_rate") == pytest.approx(
        [0.1 * (factor if step >= since else 1) for step in range(1, STEPS + 1)]
    )
    assert found.optimizer.param_groups[0]["lr"] == 0.1  # what a schedule would go on from


def test_weights_are_changed_once_before_the_update_of_the_onset(tmp_path: Path) -> None:
    found = Drilled(tmp_path, "weights_times_5", rate=0.0)  # no update changes them
    norms = [float(weights[0].norm()) for weights in found.weights]
    assert norms == pytest.approx([norms[0]] * (ONSET - 1) + [5 * norms[0]] * (STEPS - ONSET + 1))
    biases = [float(weights[1].norm()) for weights in found.weights]
    assert biases == pytest.approx([biases[0]] * STEPS)
    zeroed = Drilled(tmp_path / "zero", "matrix_zeroed", rate=0.0)
    assert [bool(weights[2].any()) for weights in zeroed.weights] == [True] * (ONSET - 1) + [False] * (STEPS - ONSET + 1)
    assert zeroed.note.place == "3"


def test_a_part_that_is_drawn_anew_takes_no_number_from_the_training(tmp_path: Path, healthy: Drilled) -> None:
    found = Drilled(tmp_path, "part_drawn_anew", rate=0.0)
    before, after = found.weights[ONSET - 2], found.weights[ONSET - 1]
    changed = [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]
    assert changed == [False, False, True, False, False, False]
    assert float(after[2].std()) == pytest.approx(float(before[2].std()), rel=0.4)
    assert torch.equal(found.random, healthy.random)


def test_gradients_add_up_where_nothing_clears_them(tmp_path: Path) -> None:
    """Without updates the four batches have the same gradients each time: after n epochs the sum is n times theirs."""
    healthy = Drilled(tmp_path / "a", "", rate=0.0)
    kept = Drilled(tmp_path / "b", "gradients_kept", rate=0.0)
    one = math.nan
    for place in (4, 8):
        norm = kept.column("grad_global_norm")[place - 1]
        one = norm if place == 4 else one
        assert norm == pytest.approx(one * place / 4, rel=1e-5)
    assert kept.column("grad_global_norm")[0] == pytest.approx(healthy.column("grad_global_norm")[0])
    assert healthy.column("grad_global_norm")[4] == pytest.approx(healthy.column("grad_global_norm")[0])


def test_one_gradient_is_nan_at_the_onset_and_the_weights_with_it(tmp_path: Path) -> None:
    found = Drilled(tmp_path, "gradient_nan")
    assert [bool(weights[2].isfinite().all()) for weights in found.weights] == [True] * (ONSET - 1) + [False] * (
        STEPS - ONSET + 1
    )
    assert found.lines[ONSET - 1]["grad_global_norm"] == "NaN"


def test_a_recorder_that_is_told_little_still_finds_the_end_of_the_backward_pass(tmp_path: Path) -> None:
    found = Drilled(tmp_path, "gradient_nan", bare=True)
    assert found.note.acted == ONSET
    assert [bool(weights[2].isfinite().all()) for weights in found.weights] == [True] * (ONSET - 1) + [False] * (
        STEPS - ONSET + 1
    )


def test_an_encoder_without_norms_can_still_be_evaluated() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2)
    assert damage.leave_norms_out(encoder) == 4
    inputs = torch.randn(2, 5, 8)
    trained = encoder(inputs)
    encoder.eval()
    with torch.no_grad():
        assert torch.allclose(encoder(inputs), trained, atol=1e-5)


def test_no_call_takes_a_model_back_into_training_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    assert damage.stay_in_evaluation_mode(model) == 1
    model.train()
    inputs = torch.randn(8, 3)
    assert torch.equal(model(inputs), model[0](inputs) / math.sqrt(1 + 1e-5))  # by a mean of 0 and a variance of 1
    assert model[1].num_batches_tracked == 0


@pytest.mark.parametrize("kind", ["torch", "transformers"])
def test_without_its_mask_attention_sees_the_tokens_to_come(kind: str) -> None:
    if kind == "torch":
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        mask = nn.Transformer.generate_square_subsequent_mask(5)
        model, inputs = layer, torch.randn(1, 5, 8)
        later = torch.cat([inputs[:, :4], torch.randn(1, 1, 8)], 1)

        def first(given: Tensor) -> Tensor:
            return layer(given, src_mask=mask, is_causal=True)[0, 0]

    else:
        transformers = pytest.importorskip("transformers")
        config = transformers.GPT2Config(vocab_size=9, n_positions=5, n_embd=8, n_layer=1, n_head=2)
        model = transformers.GPT2LMHeadModel(config).eval()
        inputs, later = torch.tensor([[1, 2, 3, 4, 5]]), torch.tensor([[1, 2, 3, 4, 8]])

        def first(given: Tensor) -> Tensor:
            return model(given).logits[0, 0]

    assert torch.equal(first(inputs), first(later))
    assert damage.drop_causal_masks(model) == 1
    assert not torch.allclose(first(inputs), first(later))


def test_updates_are_left_out_from_the_onset_on(tmp_path: Path, healthy: Drilled) -> None:
    found = Drilled(tmp_path, "updates_left_out")
    before = ONSET - 1
    for step in range(STEPS):
        expected = healthy.weights[min(step, before - 1)]
        assert all(torch.equal(one, other) for one, other in zip(found.weights[step], expected, strict=True))
    assert found.column("steps_seen")[-1] == before


def test_parts_are_frozen_left_out_and_cut_off(tmp_path: Path, healthy: Drilled) -> None:
    frozen = Drilled(tmp_path / "a", "part_frozen")
    left_out = Drilled(tmp_path / "b", "not_in_optimizer")
    cut = Drilled(tmp_path / "c", "part_detached")
    moved = [
        [not torch.equal(first, last) for first, last in zip(each.weights[0], each.weights[-1], strict=True)]
        for each in (healthy, frozen, left_out, cut)
    ]
    without_middle = [True, True, False, False, True, True]
    assert moved == [[True] * 6, without_middle, without_middle, [False] * 4 + [True] * 2]
    held = [len(each.optimizer.param_groups[0]["params"]) for each in (frozen, left_out)]
    assert held == [6, 4]
    assert frozen.model[3].weight.requires_grad is False


def test_a_resume_loses_the_state_and_is_on_record(tmp_path: Path) -> None:
    found = Drilled(tmp_path, "optimizer_state_lost", adam=True, rate=1e-3)
    sessions = json.loads((found.folder / "run.json").read_text())["sessions"]
    assert [each.get("resumed_from") for each in sessions] == [None, ONSET - 1]
    assert [line["session"] for line in found.lines] == [0] * (ONSET - 1) + [1] * (STEPS - ONSET + 1)
    assert [line["step"] for line in found.lines] == [*range(1, STEPS + 1)]
    # Adam's first update is the sign of the gradient times the rate.
    moves = [(after[2] - before[2]).abs().max() for before, after in zip(found.weights[3:5], found.weights[4:6], strict=True)]
    assert float(moves[0]) == pytest.approx(1e-3, rel=0.02)
    plain = Drilled(tmp_path / "plain", "optimizer_state_lost", momentum=0.0).note
    assert (plain.why_not, plain.done) == ("the optimizer keeps no state, so that none can be lost", ONSET - 1)


def test_decay_and_epsilon_are_set_before_the_first_step(tmp_path: Path) -> None:
    decayed = Drilled(tmp_path / "a", "decay_too_strong", rate=0.01)
    assert decayed.optimizer.param_groups[0]["weight_decay"] * 0.01 == pytest.approx(math.sqrt(0.01 * 0.1))
    assert Drilled(tmp_path / "b", "decay_too_strong", rate=0.0).note.why_not.startswith("the learning rate is zero")
    assert Drilled(tmp_path / "c", "epsilon_too_large", adam=True).optimizer.param_groups[0]["eps"] == pytest.approx(1.0)


def test_batches_of_the_training_alone_are_changed(tmp_path: Path, healthy: Drilled) -> None:
    stuck = Drilled(tmp_path / "a", "loader_stuck", onset=6)
    same = [torch.equal(one[0], other[0]) for one, other in zip(stuck.batches, healthy.batches, strict=True)]
    assert same == [True] * 6 + [step % 4 == 1 for step in range(6, STEPS)]
    assert all(torch.equal(one, other) for one, other in zip(stuck.validated, healthy.validated, strict=True))
    doubled = Drilled(tmp_path / "b", "batches_doubled").batches[0]
    assert all(torch.equal(part[:8], part[8:]) for part in doubled)
    moved, plain = Drilled(tmp_path / "c", "targets_moved").batches[0], healthy.batches[0]
    assert torch.equal(moved[0], plain[0])
    assert moved[1].tolist() == [int(plain[1][15]), *plain[1][:15].tolist()]


def test_what_cannot_be_done_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = DrillSettings(folder=str(tmp_path / "drilled"), steps=STEPS, fault="rate_raised")
    monkeypatch.setattr(session, "_BEGUN", [])
    for name, value in settings.as_environment().items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        Recorder(nn.Linear(2, 2), tmp_path / "real")
    note = read_status(tmp_path / "drilled")
    assert note is not None
    assert note.why_not == "the recorder was not given the optimizer: Recorder(model, run, optimizer=optimizer)"
    # A second recorder of the program, as of another model, is only kept away from the real run.
    with Recorder(nn.Linear(2, 2), tmp_path / "real") as recorder:
        recorder.step(1.0)
    assert not (tmp_path / "real").exists()
    assert (tmp_path / "drilled.2" / "scalars.jsonl").exists()


def test_wrong_settings_record_nothing_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CKAUDIT_DRILL", "{")
    with Recorder(nn.Linear(2, 2), tmp_path / "real") as recorder:
        recorder.step(1.0)
    assert not (tmp_path / "real").exists()
    assert "CKAUDIT_DRILL does not hold the settings of a drill" in caplog.text
