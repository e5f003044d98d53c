"""The wild split: what is drawn, that every fault does what it says, and how draws are added up."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import nn

from ckaudit.audit import triage
from ckaudit.cli.run import run
from ckaudit.lab.labels import TRUTHS
from ckaudit.lab.wild import record as recording
from ckaudit.lab.wild.damage import underflow
from ckaudit.lab.wild.draw import draw
from ckaudit.lab.wild.faults import FAULTS
from ckaudit.lab.wild.foresight import Foresight, first_steps_by_code, lead_rows, leaves_at
from ckaudit.lab.wild.forms import PRINTED, as_form, as_printed
from ckaudit.lab.wild.pair import HEALTHY, ILL, NOTE, PairNote, has_effect, pair_folder, write_note
from ckaudit.lab.wild.record import record
from ckaudit.lab.wild.score import DrawOutcome, TriageVerdict, judge, row
from ckaudit.lab.zoo import FAMILIES, WILD_TEST, families_of
from ckaudit.lab.zoo.loop import Rival
from ckaudit.lab.zoo.optimizers import Lion, ScheduleFreeAdamW, optimizer_of, optimizers_of, schedule_of
from ckaudit.lab.zoo.recipe import Recipe, batches, own_loss, pretrained
from ckaudit.lab.zoo.text_models import Adapter
from ckaudit.lab.zoo.trainers import train
from ckaudit.recorder.drill.damage import DrillStrength, middle_matrix, middle_part, part_of

SMALL = replace(FAMILIES["tabular"], through="loop", steps=12, train=256, held_out=32, every=4)
AMOUNT = DrillStrength(onset=6, strength=0.5)


def state(recipe: Recipe) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return recipe.model().state_dict()


def test_families_are_parted_and_a_draw_depends_on_its_number_alone() -> None:
    dev, test = families_of("wild-dev"), families_of("wild-test")
    assert set(test) == set(WILD_TEST)
    assert {*dev, *test} == set(FAMILIES)
    assert not set(dev) & set(test)
    one, again, other = draw("wild-dev", 3, 5), draw("wild-dev", 3, 5), draw("wild-dev", 4, 5)
    assert (one.family, one.fault, one.amount, one.healthy.lr) == (again.family, again.fault, again.amount, again.healthy.lr)
    assert one.training_seed != other.training_seed
    assert len({draw("wild-dev", 3, index).family for index in range(6)}) == 6  # each comes once before one comes again


def test_every_truth_is_a_word_of_the_lab() -> None:
    for fault in FAULTS.values():
        assert {fault.truth, *fault.acceptable} <= set(TRUTHS)


@pytest.mark.parametrize(("name", "factor"), [("init_too_large", (150) ** 0.5), ("init_too_small", 1e-3)])
def test_initial_matrices_are_scaled(name: str, factor: float) -> None:
    healthy, ill = state(SMALL), state(FAULTS[name].done(SMALL, AMOUNT))
    for key, weight in healthy.items():
        expected = weight * factor if weight.dim() >= 2 else weight
        torch.testing.assert_close(ill[key], expected)


def test_weights_are_damaged_at_the_onset_alone() -> None:
    model = SMALL.model()
    optimizer = optimizer_of(SMALL, model)
    hook = FAULTS["half_zeroed"].done(SMALL, AMOUNT).gradients
    assert hook is not None
    _, weight = middle_matrix(model)
    hook(model, optimizer, 5)
    assert (weight != 0).all()
    hook(model, optimizer, 6)
    assert (weight[: len(weight) // 2] == 0).all()
    assert (weight[len(weight) // 2 :] != 0).all()


def test_parts_are_frozen_left_out_and_detached() -> None:
    gpt = replace(FAMILIES["gpt2"], through="loop")
    model = gpt.model()
    part = middle_part(model)
    inside = {name for name, _ in part_of(model)}
    assert inside < {name for name, _ in model.named_parameters()}
    frozen = FAULTS["part_frozen"].done(gpt, AMOUNT).model()
    assert {name for name, weight in frozen.named_parameters() if not weight.requires_grad} == inside
    recipe = FAULTS["not_in_optimizer"].done(gpt, AMOUNT)
    model = recipe.model()
    held = {id(weight) for group in optimizer_of(recipe, model).param_groups for weight in group["params"]}
    assert {name for name, weight in model.named_parameters() if id(weight) not in held} == inside
    cut = FAULTS["part_detached"].done(gpt, AMOUNT).model()
    rows = gpt.rows(torch.Generator().manual_seed(0), 2)
    gpt.loss(cut, rows).backward()
    assert {name for name, weight in cut.named_parameters() if weight.grad is None} >= inside
    assert part


def test_targets_are_permuted_in_part() -> None:
    source = torch.Generator().manual_seed(0)
    healthy = SMALL.rows(source, 200)
    ill = FAULTS["targets_noisy"].done(SMALL, AMOUNT).rows(torch.Generator().manual_seed(0), 200)
    moved = float((healthy["y"] != ill["y"]).float().mean())
    assert 0.5 < moved <= 0.6  # sixty in a hundred take part, and hardly one comes back to its own place
    assert torch.equal(healthy["x"], ill["x"])
    assert torch.equal(healthy["y"].sort(0).values, ill["y"].sort(0).values)


def test_rates_are_changed() -> None:
    recipe = replace(FAULTS["rate_raised"].done(SMALL, AMOUNT), schedule="constant", warmup=0)
    optimizer = optimizer_of(recipe, nn.Linear(1, 1))
    schedule, rates = schedule_of(recipe, optimizer), []
    for _ in range(8):
        rates.append(optimizer.param_groups[0]["lr"] / SMALL.lr)
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([1.0] * 5 + [500**0.5] * 3)


def test_batches_are_changed_on_their_way() -> None:
    def fed(name: str) -> list[dict[str, torch.Tensor]]:
        feed = FAULTS[name].done(SMALL, AMOUNT).feed
        assert feed is not None
        changed = feed({"x": torch.full((4, 2), float(number)), "y": torch.arange(4.0)} for number in range(1, 13))
        return list(changed)

    stuck = [float(batch["x"][0, 0]) for batch in fed("loader_stuck")]
    assert stuck == [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5]
    bad = [float(batch["x"][0, 0]) / number for number, batch in enumerate(fed("bad_batch"), 1)]
    assert bad == pytest.approx([1.0] * 5 + [1000**0.5] + [1.0] * 6)
    half = fed("batches_doubled")[0]["y"]
    assert half.tolist() == [0, 1, 0, 1]


def test_rows_are_leaked_and_sorted() -> None:
    def rows(recipe: Recipe) -> dict[str, torch.Tensor]:
        return recipe.rows(torch.Generator().manual_seed(0), 288)

    healthy, leaky = rows(SMALL)["x"], rows(FAULTS["held_out_leaked"].done(SMALL, AMOUNT))["x"]
    held_out = {tuple(row) for row in healthy[256:].tolist()}
    assert sum(tuple(row) in held_out for row in leaky[:256].tolist()) == 128  # half of what is trained on
    assert torch.equal(leaky[256:], healthy[256:])
    recipe = FAULTS["data_not_shuffled"].done(SMALL, AMOUNT)
    targets = rows(recipe)["y"].flatten()
    assert targets[:256].tolist() == sorted(targets[:256].tolist())
    first = next(batches({"y": targets[:256]}, 64, 1, shuffled=recipe.shuffled))["y"]
    assert torch.equal(first, targets[:64])


def test_data_worsens_step_by_step() -> None:
    def changed(name: str, column: str) -> list[float]:
        feed = FAULTS[name].done(SMALL, AMOUNT).feed
        assert feed is not None
        whole = {"x": torch.ones(200, 2), "y": torch.arange(200.0)}
        return [float((batch[column] != whole[column]).float().mean()) for batch in feed(iter([whole] * 12))]

    shares = changed("targets_worsen", "y")
    assert shares[:5] == [0.0] * 5
    assert shares[5:] == pytest.approx([share / 6 for share in (1, 2, 3, 4, 5, 6, 6)], abs=0.04)
    assert changed("inputs_drift", "x") == [0.0] * 5 + [1.0] * 7


def test_probabilities_gradients_and_rates_are_damaged() -> None:
    recipe = replace(FAMILIES["cnn"], through="loop")
    rows = recipe.rows(torch.Generator().manual_seed(0), 4)
    found = FAULTS["softmax_twice"].done(recipe, AMOUNT).model()(rows["x"])
    torch.testing.assert_close(found.sum(1), torch.ones(4))
    model = nn.Linear(2, 1)
    model.weight.grad = torch.tensor([[1.0, 1e-4]])
    underflow(1e-5)(model)
    assert model.weight.grad.flatten().tolist() == pytest.approx([1.0, 0.0], abs=0.01)  # 1e-9 is no number of half precision
    assert FAULTS["queries_too_fast"].suits(FAMILIES["bert"])
    assert not FAULTS["queries_too_fast"].suits(FAMILIES["cnn"])
    hurried = FAULTS["queries_too_fast"].done(FAMILIES["bert"], AMOUNT)
    groups = optimizer_of(hurried, hurried.model()).param_groups
    assert sorted(group["lr"] / hurried.lr for group in groups) == pytest.approx([1.0, 20.0])
    rate = FAULTS["rate_creeps_up"].done(SMALL, AMOUNT).rate
    assert rate is not None
    assert [rate(step) for step in (1, 6, 9, 12)] == pytest.approx([1.0, 1.0, 2000**0.25, 2000**0.5])


@pytest.mark.filterwarnings("ignore:Detected call of .lr_scheduler.step")  # the first step is skipped, as in many a training
def test_a_loss_scale_that_grows_too_fast_skips_updates(tmp_path: Path) -> None:
    fault = FAULTS["loss_scale_too_high"]
    healthy = fault.on(replace(SMALL, steps=60))
    train(healthy, tmp_path / HEALTHY, 1)
    train(fault.done(healthy, AMOUNT), tmp_path / ILL, 1)

    def applied(name: str) -> int:
        lines = (tmp_path / name / "scalars.jsonl").read_text(encoding="utf-8").splitlines()
        return int(json.loads(lines[-1])["steps_seen"])

    assert applied(HEALTHY) >= 58  # the scale begins at 65,536, which may be too much once or twice
    assert applied(ILL) < 50
    verdict = judge(tmp_path / ILL, "recorder")
    assert (verdict.codes, verdict.causes[:1]) == (("sev1 AMP001",), ("loss_scale_too_high",))


def test_two_players_take_turns_and_leave_each_other_alone() -> None:
    recipe = FAMILIES["gan"]
    assert recipe.opponent
    model, batch = recipe.model(), recipe.rows(torch.Generator().manual_seed(0), 16)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    with Rival(recipe, recipe.opponent, model).turn(batch):
        recipe.loss(model, batch).backward()
    moved = {name.partition(".")[0] for name, weight in model.named_parameters() if not torch.equal(weight, before[name])}
    assert moved == {"discriminator"}
    assert model.get_parameter("generator.0.weight").grad is not None
    assert all(weight.requires_grad for weight in model.parameters())
    held = {id(weight) for group in optimizer_of(recipe, model).param_groups for weight in group["params"]}
    assert held == {id(weight) for weight in model.get_submodule("generator").parameters()}


def test_muon_and_adamw_share_the_weights() -> None:
    recipe = replace(FAMILIES["mixer"], optimizer="muon")
    model = recipe.model()
    muon, adamw = optimizers_of(recipe, model)
    first, rest = ({id(weight) for group in each.param_groups for weight in group["params"]} for each in (muon, adamw))
    assert first | rest == {id(weight) for weight in model.parameters()}
    assert not first & rest
    assert id(model.get_parameter("head.weight")) in rest


def test_schedule_free_follows_its_recurrence() -> None:
    weight, rate, mixed, kept = nn.Parameter(torch.tensor([2.0])), 0.1, 0.9, 0.999
    optimizer = ScheduleFreeAdamW([weight], lr=rate, betas=(mixed, kept), weight_decay=0.01)
    z = x = 2.0
    second = 0.0
    for step in range(1, 6):
        y = (1 - mixed) * z + mixed * x
        second = kept * second + (1 - kept) * (2 * y) ** 2
        z -= rate * (2 * y / ((second / (1 - kept**step)) ** 0.5 + 1e-8) + 0.01 * y)
        x += (z - x) / step  # at a constant rate the mean of all z
        (weight**2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert float(weight.detach()) == pytest.approx((1 - mixed) * z + mixed * x, rel=1e-5)
    optimizer.eval()
    assert float(weight.detach()) == pytest.approx(x, rel=1e-5)
    optimizer.train()
    assert float(weight.detach()) == pytest.approx((1 - mixed) * z + mixed * x, rel=1e-5)


@pytest.mark.parametrize("kind", [Lion, ScheduleFreeAdamW])
def test_an_optimizer_steps_by_the_gradient_of_its_closure(kind: type[Lion] | type[ScheduleFreeAdamW]) -> None:
    weight = nn.Parameter(torch.tensor([2.0]))
    optimizer = kind([weight], lr=0.1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4
    assert float(weight.detach()) == pytest.approx(1.9)


def test_a_trunk_is_frozen_and_adapters_begin_as_nothing() -> None:
    trunk = pretrained(nn.Linear(4, 4), {}, own_loss, steps=0)
    assert not any(weight.requires_grad for weight in trunk.parameters())
    model, x = Adapter(trunk, 4), torch.randn(3, 4)
    assert torch.equal(model(x), trunk(x))
    assert {name for name, weight in model.named_parameters() if weight.requires_grad} == {
        *("down.weight", "down.bias", "up.weight", "up.bias")
    }


STEPS = np.arange(1, 101)
TWIN = 4.0 - 0.02 * STEPS + 0.02 * np.sin(37.0 * STEPS)


@pytest.mark.parametrize(
    ("excess", "expected"),
    [
        (np.where(STEPS >= 60, 0.05 * (STEPS - 60), 0.0), 62),  # more than a twentieth of the fall of 1.8 from step 62 on
        (np.where((STEPS >= 30) & (STEPS < 50), 1.0, 0.0), None),  # it comes back
        (np.where((STEPS >= 30) & (STEPS < 50) | (STEPS > 80), 1.0, 0.0), 81),
        (np.where(STEPS > 70, np.inf, 0.0), 71),
        (0.3 * np.cos(91.0 * STEPS), None),  # noise
    ],
)
def test_a_loss_leaves_its_twin_where_it_stays_above(excess: np.ndarray, expected: int | None) -> None:
    found = leaves_at(STEPS, TWIN, STEPS, TWIN + excess)
    assert found == expected if expected is None else found is not None and abs(found - expected) <= 1
    assert leaves_at(STEPS, TWIN, STEPS[:40], TWIN[:40]) == 41  # it ended there


def test_leads_are_added_up() -> None:
    def seen(left: int | None, warnings: dict[str, int], alarms: dict[str, int] | None = None) -> Foresight:
        return Foresight(fault="f", form="recorder", onset=10, left=left, warnings=warnings, alarms=alarms or {}, is_healthy=True)

    draws = [seen(50, {"A": 30, "B": 60}), seen(30, {"B": 40}), seen(90, {}), seen(None, {"A": 20}, {"B": 5})]
    forms, faults, codes = lead_rows(draws)
    assert [row.name for row in (*forms, *faults)] == ["recorder", "f"]
    whole = forms[0]
    assert (whole.warned.hits, whole.warned.of, whole.ahead.hits, whole.steps, whole.share) == (2, 3, 1, 5.0, 0.0)
    assert (whole.alarms.hits, whole.alarms.of) == (1, 4)
    assert [(row.name, row.ahead.hits, row.steps, row.alarms.hits) for row in codes] == [("A", 1, 20, 0), ("B", 0, -10, 1)]


def test_a_checkpoint_as_printed_has_the_fields_of_the_contract_alone() -> None:
    document = {
        "schema_version": "ck.analysis.v1",
        "step": 10,
        "loss": 2.0,
        "scalars": {"learning_rate": 1e-3},
        "weights": {"w": {"mean": 0.0, "numel": 4, "histogram": {"bins": {"range": [0.0, 1.0], "count": 2}, "counts": [1, 3]}}},
        "activations": {"a": {"rms": 1.0}},
    }
    assert as_printed(document) == {
        "schema_version": "ck.analysis.v1",
        "step": 10,
        "loss": 2.0,
        "weights": {"w": {"mean": 0.0, "histogram": {"bins": [0.0, 0.5, 1.0], "counts": [1, 3]}}},
        "activations": {},
    }


PAIR = PairNote(
    family="tabular",
    fault="rate_too_low",
    truth="learning_rate_too_low",
    acceptable=("missing_warmup",),
    is_fact=False,
    onset=1,
    strength=0.5,
    place="blocks.1",
    through="loop",
    optimizer="adam",
    schedule="constant",
    steps=20,
    seconds=1.0,
)


def logged(folder: Path, losses: list[float]) -> None:
    folder.mkdir(parents=True)
    lines = [json.dumps({"step": step, "train_loss_raw": loss}) for step, loss in enumerate(losses, 1)]
    (folder / "scalars.jsonl").write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize(
    ("ill", "expected"),
    [
        ([4.0 - 0.1 * step for step in range(20)], False),
        ([4.0 - 0.1 * step + 0.05 for step in range(20)], False),  # a fortieth of what the twin's fell
        ([4.0 - 0.09 * step for step in range(20)], True),
        ([4.0] * 10, True),  # it ended early
    ],
)
def test_an_effect_is_a_loss_that_ends_above_its_twins(tmp_path: Path, ill: list[float], expected: bool) -> None:
    logged(tmp_path / HEALTHY, [4.0 - 0.1 * step for step in range(20)])
    logged(tmp_path / ILL, ill)
    assert has_effect(PAIR, tmp_path / ILL, tmp_path / HEALTHY) is expected


@pytest.mark.parametrize(("ill", "expected"), [([2.0, 1.5, 1.0], False), ([2.0, 1.4, 1.0], True)])
def test_a_changed_weight_that_leaves_every_loss_as_it_was_has_no_effect(
    tmp_path: Path, ill: list[float], expected: bool
) -> None:
    logged(tmp_path / HEALTHY, [2.0, 1.5, 1.0])
    logged(tmp_path / ILL, ill)
    assert has_effect(replace(PAIR, is_fact=True), tmp_path / ILL, tmp_path / HEALTHY) is expected


@pytest.mark.parametrize(("last", "expected"), [(64.0, False), (100.0, True)])
def test_a_sum_is_held_against_its_twin_in_the_unit_of_the_twin(tmp_path: Path, last: float, expected: bool) -> None:
    logged(tmp_path / HEALTHY, [4.0, 2.0, 1.0])
    logged(tmp_path / ILL, [256.0, 128.0, last])
    assert has_effect(replace(PAIR, truth="loss_reduced_by_sum"), tmp_path / ILL, tmp_path / HEALTHY) is expected


def test_outcomes_are_added_up() -> None:
    def outcome(
        ill: TriageVerdict,
        healthy: TriageVerdict = TriageVerdict(),  # noqa: B008
        *,
        effect: bool = True,
        learns: bool = True,
    ) -> DrawOutcome:
        return DrawOutcome(index=0, pair=PAIR, form="recorder", has_effect=effect, is_healthy=learns, ill=ill, healthy=healthy)

    right = TriageVerdict(codes=("sev2 LOSS004",), causes=("missing_warmup",), confidence=0.9, places=("blocks.1.attn",))
    third = TriageVerdict(codes=("sev1 X",), causes=("a", "b", "learning_rate_too_low"), confidence=0.8, places=("blocks.0",))
    unsure = TriageVerdict(codes=("sev2 X",), causes=("a",), confidence=0.5)
    missed, alarm = TriageVerdict(), TriageVerdict(codes=("sev1 X",))
    line = row("all", [outcome(right), outcome(third), outcome(unsure, alarm), outcome(missed), outcome(alarm, effect=False)])
    counts = (line.found, line.right, line.among_three, line.sure_and_wrong, line.placed, line.grave, line.harmless_flagged)
    assert [(share.hits, share.of) for share in counts] == [(3, 4), (1, 4), (2, 4), (1, 4), (1, 4), (1, 5), (1, 1)]


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("blocks.1", True),
        ("blocks.1.mlp.weight", True),
        ("model.blocks.1.mlp.weight", True),
        ("blocks.1/head.0", True),
        ("blocks.10.mlp.weight", False),
        ("blocks.0.mlp.weight", False),
        ("subblocks.1.mlp", False),
    ],
)
def test_a_place_counts_under_whatever_name_a_trainer_holds_the_model(named: str, expected: bool) -> None:
    pair = replace(PAIR, place="blocks.1")
    verdict = TriageVerdict(places=(named,))
    outcome = DrawOutcome(
        index=0, pair=pair, form="recorder", has_effect=True, is_healthy=True, ill=verdict, healthy=TriageVerdict()
    )
    assert outcome.is_placed is expected


def test_a_draw_is_recorded_judged_in_every_form_and_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    drawn = replace(draw("wild-dev", 0, 0), family="tabular", fault="sign_flipped", healthy=replace(SMALL, steps=60, lr=3e-3))
    folder = pair_folder(tmp_path, "wild-dev", 0, 0)
    record(drawn, folder)
    told = first_steps_by_code(folder / ILL, "recorder")
    code, step = min(told.items(), key=lambda item: item[1])
    known = {
        at: {found.code for found in triage(folder / ILL, step=at).findings if found.severity != "note"}
        for at in (step - 1, step)
    }
    assert code in known[step] - known[step - 1]
    assert set(judge(folder / ILL, "recorder", since=10_000).codes) < set(judge(folder / ILL, "recorder").codes)
    printed = as_form(folder / ILL, "contract", tmp_path / "printed")
    for file in printed.iterdir():
        document = json.loads(file.read_text(encoding="utf-8"))
        assert {*document} <= {"schema_version", "step", "loss", *PRINTED}
    assert run(["lab", "score", "--split", "wild-dev", "--cache", str(tmp_path), "--format", "json", "--jobs", "1"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert (score["draws"], score["broken"]) == (1, {})
    assert [form["name"] for form in score["forms"]] == ["recorder", "contract", "log"]
    assert score["forms"][0]["found"]["hits"] == 1  # a loss that climbs from the first step on
    assert score["forms"][0]["grave"]["hits"] == 0
    ledger = (tmp_path / "docs" / "wild-ledger.csv").read_text(encoding="utf-8").splitlines()
    assert [line.split(",")[2:6] for line in ledger[1:]] == [
        ["wild-dev", "0", "1", form] for form in ("recorder", "contract", "log")
    ]


def test_what_is_not_recorded_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lab", "score", "--split", "wild-test", "--seed", "7", "--cache", str(tmp_path)]) == 2
    assert "holds no draw of wild-test with seed 7" in capsys.readouterr().err
    for words in (["--seed", "x"], ["--draws", "0"], ["--split", "tame"]):
        assert run(["lab", "wild", *words]) == 2


def test_what_is_recorded_already_is_not_trained_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = pair_folder(tmp_path, "wild-dev", 0, 0)
    folder.mkdir()
    write_note(folder / NOTE, PAIR)
    assert run(["lab", "wild", "--draws", "1", "--cache", str(tmp_path)]) == 0
    assert "0 of 1 draws to record" in capsys.readouterr().err


def _draw(split, seed, index, cache):
    """Stand for a training, of which the third ends its process as a fault in a library does."""
    if index == 2:
        os._exit(139)
    (cache / str(index)).mkdir()
    return f"draw {index}", cache / str(index)


def test_a_training_whose_process_dies_is_told_and_the_others_are_recorded(tmp_path, monkeypatch):
    # Trainers take seconds, and nothing trains here; this file, which each process imports to find what it does, takes one.
    monkeypatch.setattr(recording, "PRELOADED", (__name__,))
    seen = []
    done = recording._record_each(_draw, [("wild-dev", 0, index, tmp_path) for index in range(5)], jobs=2, on_done=seen.append)
    assert seen == done
    assert {one.name: one.error for one in done if one.error} == {"wild-dev, draw 2": "its process died twice"}
    assert {folder.name for folder in tmp_path.iterdir()} == {"0", "1", "3", "4"}
