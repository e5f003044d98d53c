"""What the loss function is given, held against the same numbers by hand, from trainings with a recorder."""

import math
import sys
from collections import Counter
from types import ModuleType

import numpy as np
import pytest
import torch
from msgspec import UNSET
from torch import nn
from torch.nn import functional

from ckaudit.contract.schema.manifest import Cadence
from ckaudit.recorder import Recorder
from ckaudit.recorder.hooks import loss_functions
from ckaudit.recorder.stats.loss_stats import KINDS
from ckaudit.run.column_builder import LOSS_FUNCTIONS

EVERY = [Cadence(until=None, every=1)]
CLASSES, ROWS = 5, 24


@pytest.fixture
def train(read, tmp_path):
    """Return what trains a linear model, and what each checkpoint says of its loss function beside what that was given."""
    return lambda *args, **options: _train(read, tmp_path, *args, **options)


def _train(read, folder, loss_of, *, steps=3, outputs=CLASSES):
    torch.manual_seed(0)
    model = nn.Linear(7, outputs)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorder = Recorder(model, folder, optimizer=optimizer, cadence=EVERY)
    seen = []
    for step in range(steps):
        loss, *given = loss_of(model, step)
        seen.append([loss.detach(), *(tensor.detach().clone() for tensor in given)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()
    return [read(folder, step).loss_function for step in range(1, steps + 1)], seen


def classes_of(step, rows=ROWS):
    torch.manual_seed(step)
    return torch.randn(rows, 7), torch.randint(0, CLASSES, (rows,)) ** 2 // 4


def by_cross_entropy(model, step):
    inputs, targets = classes_of(step)
    outputs = model(inputs)
    return functional.cross_entropy(outputs, targets), outputs, targets


def entropy(targets):
    """Return the entropy of what occurs in a list, with Miller's correction."""
    counts = Counter(targets)
    total = sum(counts.values())
    return -sum(count / total * math.log(count / total) for count in counts.values()) + (len(counts) - 1) / (2 * total)


def test_a_cross_entropy_is_held_against_the_entropy_of_its_targets(train):
    sections, seen = train(by_cross_entropy)
    past = []
    for section, (loss, _, targets) in zip(sections, seen, strict=True):
        past += targets.tolist()
        assert (section.function, section.classes, section.targets) == ("cross_entropy", CLASSES, ROWS)
        assert section.value == pytest.approx(float(loss), rel=1e-5)
        assert section.batch_constant_value == pytest.approx(entropy(targets.tolist()), rel=1e-4)
        assert section.constant_value == pytest.approx(entropy(past), rel=1e-4)
        assert section.normalized_share == 0


def test_probabilities_in_place_of_logits_show(train):
    def twice(model, step):
        inputs, targets = classes_of(step)
        return (nn.CrossEntropyLoss()(model(inputs).softmax(1), targets),)

    sections, _ = train(twice)
    assert [section.normalized_share for section in sections] == [1, 1, 1]


@pytest.mark.parametrize(("with_logs", "share"), [(True, 1), (False, 0)])
def test_nll_loss_takes_logs_of_probabilities(train, with_logs, share):
    def likelihood(model, step):
        inputs, targets = classes_of(step)
        outputs = model(inputs)
        return (functional.nll_loss(outputs.log_softmax(1) if with_logs else outputs, targets),)

    sections, _ = train(likelihood)
    assert {section.normalized_share for section in sections} == {share}


@pytest.mark.parametrize(("dimension", "share"), [(2, 1), (0, 0)])
def test_alignments_take_logs_of_probabilities_over_the_classes(train, dimension, share):
    def alignment(model, step):
        torch.manual_seed(step)
        inputs, targets = torch.randn(12, 3, 7), torch.randint(1, CLASSES, (3, 4))
        logs = model(inputs).log_softmax(dimension)
        return (nn.CTCLoss()(logs, targets, torch.full((3,), 12), torch.full((3,), 4)),)

    sections, _ = train(alignment)
    assert {(section.function, section.classes, section.normalized_share) for section in sections} == {("ctc_loss", UNSET, share)}
    assert {section.value for section in sections} == {section.constant_value for section in sections} == {UNSET}
    assert {section.targets for section in sections} == {UNSET}


def test_targets_that_are_ignored_and_dimensions_behind_the_classes_are_left_out(train):
    def of_tokens(model, step):
        torch.manual_seed(step)
        inputs, targets = torch.randn(4, 6, 7), torch.randint(0, CLASSES, (4, 6))
        targets[:, :2] = -100
        outputs = model(inputs).transpose(1, 2)
        return functional.cross_entropy(outputs, targets), targets

    sections, seen = train(of_tokens)
    for section, (loss, targets) in zip(sections, seen, strict=True):
        assert section.targets == 16
        assert section.value == pytest.approx(float(loss), rel=1e-5)
        assert section.batch_constant_value == pytest.approx(entropy(targets[targets >= 0].tolist()), rel=1e-4)


def test_targets_may_be_distributions(train):
    def of_mixtures(model, step):
        torch.manual_seed(step)
        targets = torch.rand(ROWS, CLASSES).softmax(1)
        return functional.cross_entropy(model(torch.randn(ROWS, 7)), targets), targets

    sections, seen = train(of_mixtures, steps=1)
    mean = seen[0][1].mean(0).double().numpy()
    assert sections[0].value == pytest.approx(float(seen[0][0]), rel=1e-5)
    expected = -(mean * np.log(mean)).sum() + (CLASSES - 1) / (2 * ROWS)
    assert sections[0].batch_constant_value == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_a_regression_is_held_against_the_variance_of_its_targets(train, name):
    def of_numbers(model, step):
        torch.manual_seed(step)
        outputs, targets = model(torch.randn(ROWS, 7)), torch.randn(ROWS, 2) * 3 + 5
        return getattr(functional, name)(outputs, targets), outputs, targets

    sections, seen = train(of_numbers, outputs=2)
    past = np.empty((0, 2))
    for section, (_, outputs, targets) in zip(sections, seen, strict=True):
        past = np.concatenate([past, targets.numpy()])
        assert (section.function, section.targets) == (name, ROWS)
        assert section.value == pytest.approx(float(((outputs - targets) ** 2).mean()), rel=1e-5)
        assert section.constant_value == pytest.approx(past.var(axis=0, ddof=1).mean(), rel=1e-4)
        assert section.batch_constant_value == pytest.approx(targets.numpy().var(axis=0, ddof=1).mean(), rel=1e-4)


def test_outputs_that_are_held_against_all_targets_show(train):
    def of_another_shape(model, step):
        return (functional.mse_loss(model(torch.randn(ROWS, 7)), torch.randn(ROWS)),)

    with pytest.warns(UserWarning, match="target size"):
        sections, _ = train(of_another_shape, outputs=1)
    assert all(section.is_broadcast for section in sections)


def test_labels_of_several_answers_are_entropies_of_each(train):
    def of_labels(model, step):
        torch.manual_seed(step)
        outputs, targets = model(torch.randn(ROWS, 7)), (torch.rand(ROWS, 3) < 0.3).float()
        return functional.binary_cross_entropy_with_logits(outputs, targets), outputs, targets

    sections, seen = train(of_labels, outputs=3)
    for section, (loss, outputs, targets) in zip(sections, seen, strict=True):
        rates = [sum(column) / ROWS for column in zip(*targets.tolist(), strict=True)]
        expected = np.mean([-p * math.log(p) - (1 - p) * math.log(1 - p) + 1 / (2 * ROWS) for p in rates])
        assert section.value == pytest.approx(float(loss), rel=1e-5)
        assert section.batch_constant_value == pytest.approx(expected, rel=1e-4)
        assert section.normalized_share == pytest.approx(float(((outputs >= 0) & (outputs <= 1)).all(1).float().mean()))


def test_probabilities_of_one_answer_are_entropies_too(train):
    def of_one(model, step):
        torch.manual_seed(step)
        outputs, targets = model(torch.randn(ROWS, 7)).sigmoid(), (torch.rand(ROWS, 1) < 0.3).float()
        return functional.binary_cross_entropy(outputs, targets), targets

    sections, seen = train(of_one, outputs=1)
    assert [section.value for section in sections] == pytest.approx([float(loss) for loss, _ in seen], rel=1e-5)


def test_parts_of_a_batch_are_added_up(train):
    def in_parts(model, step):
        inputs, targets = classes_of(step)
        losses = [functional.cross_entropy(model(inputs[part::2]), targets[part::2]) for part in range(2)]
        return sum(losses) / 2, targets

    sections, seen = train(in_parts)
    for section, (loss, targets) in zip(sections, seen, strict=True):
        assert section.targets == ROWS
        assert section.value == pytest.approx(float(loss), rel=1e-5)
        assert section.batch_constant_value == pytest.approx(entropy(targets.tolist()), rel=1e-4)


def test_the_loss_with_most_targets_counts(train):
    def of_two(model, step):
        inputs, targets = classes_of(step)
        outputs = model(inputs)
        return functional.cross_entropy(outputs, targets) + functional.mse_loss(outputs[:3, :1], inputs[:3, :1]), targets

    sections, _ = train(of_two)
    assert {section.function for section in sections} == {"cross_entropy"}


def test_evaluations_and_losses_of_somebody_else_do_not_count(train):
    def beside(model, step):
        with torch.no_grad():
            functional.mse_loss(torch.zeros(900), torch.ones(900))
        inputs, targets = classes_of(step)
        return -model(inputs).log_softmax(1).gather(1, targets[:, None]).mean(), targets

    sections, _ = train(beside)
    assert {str(section) for section in sections} == {"UNSET"}


def test_a_loss_that_was_imported_by_its_name_is_seen_and_is_what_it_was_afterwards(train, monkeypatch):
    theirs = ModuleType("theirs")
    exec("from torch.nn.functional import cross_entropy\nloss_of = lambda *given: cross_entropy(*given)", vars(theirs))
    monkeypatch.setitem(sys.modules, "theirs", theirs)
    original = theirs.cross_entropy

    def by_name(model, step):
        inputs, targets = classes_of(step)
        return (theirs.loss_of(model(inputs), targets),)

    sections, seen = train(by_name)
    assert [section.value for section in sections] == pytest.approx([float(loss) for (loss,) in seen], rel=1e-5)
    assert theirs.cross_entropy is original is functional.cross_entropy


def test_a_module_that_gets_a_loss_on_the_way_is_seen(train, monkeypatch):
    theirs, original = ModuleType("theirs"), functional.mse_loss
    monkeypatch.setitem(sys.modules, "theirs", theirs)

    def late(model, step):
        theirs.__dict__.setdefault("mse_loss", original)
        return (theirs.mse_loss(model(classes_of(step)[0]), torch.ones(ROWS, CLASSES)),)

    sections, _ = train(late)
    assert [section.function for section in sections] == ["mse_loss"] * 3
    assert theirs.mse_loss is original is functional.mse_loss


def test_a_function_mode_does_not_count_a_call_twice(train):
    with torch.device("cpu"):
        sections, _ = train(by_cross_entropy)
    assert [section.targets for section in sections] == [ROWS] * 3


def test_functions_are_what_they_were_once_all_recorders_are_closed(tmp_path):
    before = {name: getattr(functional, name) for name in KINDS}
    models = [nn.Linear(7, CLASSES) for _ in range(2)]
    recorders = [Recorder(model, tmp_path / str(place), cadence=EVERY) for place, model in enumerate(models)]
    assert functional.cross_entropy is not before["cross_entropy"]
    assert functional.cross_entropy.__name__ == "cross_entropy"
    recorders[0].close()
    assert functional.cross_entropy is not before["cross_entropy"]
    recorders[1].close()
    assert {name: getattr(functional, name) for name in KINDS} == before
    assert not loss_functions._watches


def test_what_somebody_else_puts_in_the_place_stays(tmp_path, monkeypatch):
    original = functional.cross_entropy
    recorder = Recorder(nn.Linear(7, CLASSES), tmp_path, cadence=EVERY)
    wrapper = functional.cross_entropy

    def theirs(*args):
        return wrapper(*args)

    monkeypatch.setattr(functional, "cross_entropy", theirs)
    recorder.close()
    assert functional.cross_entropy is theirs
    assert float(theirs(torch.zeros(1, 2), torch.tensor([0]))) == pytest.approx(math.log(2))
    monkeypatch.setattr(functional, "cross_entropy", original)


def test_a_step_that_is_not_due_costs_nothing(tmp_path):
    original = functional.cross_entropy
    model = nn.Linear(7, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    recorder = Recorder(model, tmp_path, optimizer=optimizer, cadence=[Cadence(until=None, every=5)])
    for step in range(1, 7):
        assert (functional.cross_entropy is original) == (step != 5)
        inputs, targets = classes_of(step)
        loss = functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recorder.step(loss)
    recorder.close()


def test_of_many_outputs_some_are_looked_at_and_all_targets_are_counted(train, monkeypatch):
    monkeypatch.setattr("ckaudit.recorder.stats.loss_stats.LARGEST", 4 * CLASSES)
    monkeypatch.setattr("ckaudit.recorder.stats.loss_stats.MIN_ROWS", 1)
    sections, seen = train(by_cross_entropy, steps=1)
    _, outputs, targets = seen[0]
    rows = slice(None, None, ROWS // 4)
    assert sections[0].value == pytest.approx(float(functional.cross_entropy(outputs[rows], targets[rows])), rel=1e-5)
    assert sections[0].targets == ROWS
    assert sections[0].batch_constant_value == pytest.approx(entropy(targets.tolist()), rel=1e-4)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_smoothing_is_told_and_left_out_of_the_value(train, smoothing):
    def of_smoothed(model, step):
        inputs, targets = classes_of(step)
        outputs = model(inputs)
        return functional.cross_entropy(outputs, targets, label_smoothing=smoothing), outputs, targets

    sections, seen = train(of_smoothed, steps=1)
    assert sections[0].smoothing == pytest.approx(smoothing)
    assert sections[0].value == pytest.approx(float(functional.cross_entropy(*seen[0][1:])), rel=1e-5)


@pytest.mark.parametrize("kind", ["one class", "two calls", "two outputs", "shares", "one-hot"])
def test_rows_with_targets_of_several_classes_are_told(train, kind):
    def of_mixed(model, step):
        inputs, targets = classes_of(step)
        outputs, others = model(inputs), targets.roll(1)
        shares = functional.one_hot(targets, CLASSES).float()
        losses = {
            "one class": lambda: functional.cross_entropy(outputs, targets),
            "two calls": lambda: (
                0.7 * functional.cross_entropy(outputs, targets) + 0.3 * functional.cross_entropy(outputs, others)
            ),
            "two outputs": lambda: functional.cross_entropy(outputs, targets) + functional.cross_entropy(model(inputs), others),
            "shares": lambda: functional.cross_entropy(outputs, 0.7 * shares + 0.3 * shares.roll(1, 0)),
            "one-hot": lambda: functional.cross_entropy(outputs, shares),
        }
        return losses[kind](), outputs, targets

    sections, _ = train(of_mixed, steps=1)
    assert sections[0].is_mixed is (kind in ("two calls", "shares"))


def test_outputs_that_somebody_expands_against_all_targets_show_too(train):
    def of_pairs(model, step):
        torch.manual_seed(step)
        outputs, targets = model(torch.randn(ROWS, 7)), (torch.rand(ROWS) < 0.5).float()
        return (functional.binary_cross_entropy_with_logits(outputs.expand(-1, ROWS), targets[None].expand(ROWS, -1)),)

    sections, _ = train(of_pairs, outputs=1)
    assert all(section.is_broadcast for section in sections)


def test_targets_that_are_one_number_for_all_are_held_against_each_output(train):
    def of_real_ones(model, step):
        return (functional.binary_cross_entropy_with_logits(model(classes_of(step)[0]), torch.ones(()).expand(ROWS, 1)),)

    sections, _ = train(of_real_ones, outputs=1)
    assert {section.targets for section in sections} == {ROWS}


def test_every_function_that_is_recorded_has_a_number_to_be_read_as():
    assert list(KINDS) == list(LOSS_FUNCTIONS) == [name for name in LOSS_FUNCTIONS if callable(getattr(functional, name))]


def test_of_a_loss_of_several_functions_each_is_told(train, read, tmp_path):
    def of_two(model, step):
        inputs, targets = classes_of(step)
        outputs, boxes = model(inputs), torch.randn(ROWS, 2) * 3 + 5
        answers = outputs[:, CLASSES:]
        return functional.cross_entropy(outputs[:, :CLASSES], targets) + functional.mse_loss(answers, boxes), answers, boxes

    _, seen = train(of_two, outputs=CLASSES + 2)
    past = np.empty((0, 2))
    for step, (loss, answers, boxes) in enumerate(seen, start=1):
        past = np.concatenate([past, boxes.numpy()])
        terms = read(tmp_path, step).loss_terms
        assert list(terms) == ["cross_entropy/5", "mse_loss/2"]
        assert terms["mse_loss/2"].value == pytest.approx(float(((answers - boxes) ** 2).mean()), rel=1e-5)
        assert terms["mse_loss/2"].constant_value == pytest.approx(past.var(axis=0, ddof=1).mean(), rel=1e-4)
        assert sum(term.value for term in terms.values()) == pytest.approx(float(loss), rel=1e-5)


def test_of_a_loss_of_one_function_there_are_no_terms(train, read, tmp_path):
    train(by_cross_entropy)
    assert read(tmp_path, 1).loss_terms is UNSET


HELD = {name: getattr(functional, name) for name in ("cross_entropy", "mse_loss", "l1_loss", "binary_cross_entropy")}
"""Functions as a program holds them that took them before any recorder began, under names of its own."""


def test_a_function_held_under_another_name_is_seen_once(train):
    def loss_of(model, step):
        inputs, targets = classes_of(step)
        outputs = model(inputs)
        return HELD["cross_entropy"](outputs, targets, label_smoothing=0.1, ignore_index=2), outputs, targets

    found, seen = train(loss_of)
    for stats, (_, outputs, targets) in zip(found, seen, strict=True):
        kept = targets != 2
        assert (stats.function, stats.classes, stats.targets) == ("cross_entropy", CLASSES, int(kept.sum()))
        assert stats.smoothing == pytest.approx(0.1)
        assert stats.value == pytest.approx(float(functional.cross_entropy(outputs[kept], targets[kept])), rel=1e-5)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "binary_cross_entropy"])
def test_losses_of_numbers_under_another_name(train, name):
    def loss_of(model, step):
        inputs, _ = classes_of(step)
        outputs = model(inputs).sigmoid()
        targets = torch.rand_like(outputs)
        return HELD[name](outputs, targets), outputs, targets

    found, seen = train(loss_of)
    for stats, (_, outputs, targets) in zip(found, seen, strict=True):
        wanted = functional.binary_cross_entropy(outputs, targets) if name[0] == "b" else (outputs - targets).square().mean()
        assert stats.function == name
        assert stats.value == pytest.approx(float(wanted), rel=1e-4)


def test_what_functions_call_is_torch_s_own_when_nobody_watches(train):
    before = torch._C._nn.cross_entropy_loss
    train(by_cross_entropy)
    assert torch._C._nn.cross_entropy_loss is before
