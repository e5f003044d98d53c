import numpy as np
import pytest
import torch
from torch import nn

from ckaudit.recorder import Recorder
from ckaudit.recorder.batch_facts import batch_facts, batch_hash, embedded_words, inputs_and_targets, token_histogram
from ckaudit.recorder.target_alignment import match, next_token_share, same_token_share, shift_match, shifts_labels
from ckaudit.run.read import read_run


def facts(batch, **given):
    return batch_facts(batch, **({"input_hash": None, "batch_id": None, "source": None, "vocabulary": None} | given))


def test_the_shift_is_counted_target_by_target():
    inputs = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    targets = torch.tensor([[2, 3, 9, 5], [6, -100, 8, 9]])
    x, y = inputs.numpy(), targets.numpy()
    counted = [(b, t) for b in range(2) for t in range(3) if y[b, t] != -100]
    assert shift_match(inputs, targets) == np.mean([y[b, t] == x[b, t + 1] for b, t in counted]) == 0.8
    assert match(inputs, inputs) == 1.0
    assert shift_match(inputs, torch.full_like(inputs, -100)) is None


def test_a_missing_shift_shows():
    tokens = torch.arange(20).reshape(2, 10)
    found = facts((tokens, tokens.clone()))
    assert (found.target_shift_match, found.target_equals_input) == (0.0, 1.0)


@pytest.mark.parametrize("is_time_first", [False, True])
def test_what_an_embedding_reads_is_held_against_the_targets(is_time_first):
    target, other = torch.tensor([[1, 5, 5, 2, 9], [1, 7, 3, 8, 9]]), torch.tensor([[4, 4, 6, 7], [3, 6, 7, 12]])
    read, targets = target[:, :-1], target[:, 1:].clone()
    targets[1, 0] = -100
    pairs = [(b, t) for b in range(2) for t in range(3) if read[b, t] != read[b, t + 1] and targets[b, t] != -100]
    assert pairs == [(0, 0), (0, 2), (1, 1), (1, 2)]
    targets[1, 1] = 11
    if is_time_first:
        read, targets, other = read.T, targets.T, other.T
    assert next_token_share([other, read], targets.flatten()) == 0.75
    assert next_token_share([other], targets) == 0.0
    assert next_token_share([read], targets.flatten()[:5]) is None
    assert next_token_share([read], None) is None


def test_of_a_translator_it_is_what_the_decoder_reads(tmp_path):
    torch.manual_seed(0)
    source, target = torch.randint(3, 20, (4, 6)), torch.randint(3, 20, (4, 7))
    model = nn.ModuleDict({"source": nn.Embedding(20, 8), "answer": nn.Embedding(20, 8)})
    model["transformer"], model["head"] = nn.Transformer(8, 2, 1, 1, 8, batch_first=True), nn.Linear(8, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    recorder = Recorder(model, tmp_path, optimizer=optimizer, vocabulary=20)
    for _ in range(10):
        states = model["transformer"](model["source"](source), model["answer"](target[:, :-1]))
        loss = nn.functional.cross_entropy(model["head"](states).flatten(0, 1), target[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        recorder.step(loss, batch=(source, target[:, 1:]))
    recorder.close()
    run = read_run(tmp_path)
    assert run.value("data.embedded_shift_match").values[0, 0] == 1.0
    assert run.value("data.target_shift_match").values[0, 0] < 0.5


@pytest.mark.parametrize("shifts", [False, True])
def test_a_decoder_that_is_given_what_it_is_to_write_is_known_by_what_it_reads(tmp_path, shifts):
    torch.manual_seed(0)
    source, target = torch.randint(3, 20, (4, 6)), torch.randint(3, 20, (4, 7))
    model = nn.ModuleDict({"source": nn.Embedding(20, 8), "answer": nn.Embedding(20, 8), "head": nn.Linear(8, 20)})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Recorder(model, tmp_path, optimizer=optimizer, vocabulary=20) as recorder:
        for _ in range(10):
            read = target[:, :-1] if shifts else target[:, 1:]
            states = model["answer"](read) + model["source"](source).mean(1, keepdim=True)
            loss = nn.functional.cross_entropy(model["head"](states).flatten(0, 1), target[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            recorder.step(loss, batch=(source, target[:, 1:]))
    (found,) = read_run(tmp_path).value("data.target_equals_embedded").values[-1]
    assert found < 0.3 if shifts else found == 1.0


def test_tags_that_are_mostly_zero_and_segments_of_one_kind_say_nothing():
    words, segments = torch.randint(3, 20, (4, 9)), torch.zeros(4, 9, dtype=torch.long)
    tags = torch.zeros(4, 9, dtype=torch.long)
    tags[0, 1] = 2
    assert same_token_share([words, segments], tags.flatten()) == 0.0
    assert same_token_share([words, segments], words) == 1.0
    assert same_token_share([segments], tags) is None


@pytest.mark.parametrize("hides", [False, True])
def test_of_words_that_are_to_be_filled_in_those_that_count_are_looked_for(tmp_path, hides):
    torch.manual_seed(0)
    tokens = torch.randint(3, 20, (8, 9))
    chosen = torch.rand(tokens.shape) < 0.3
    read = tokens.masked_fill(chosen, 0) if hides else tokens
    targets = tokens.masked_fill(~chosen, -100)
    model = Next()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for _ in range(10):
            loss = nn.functional.cross_entropy(model(read).flatten(0, 1), targets.flatten())
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    (found,) = read_run(tmp_path).value("data.target_equals_embedded").values[-1]
    assert found == (0.0 if hides else 1.0)


@pytest.mark.parametrize("shuffles", [False, True])
def test_where_the_loss_leaves_padding_out_the_model_shows_that_it_is_asked_for_the_next_token(tmp_path, shuffles):
    torch.manual_seed(0)
    model, tokens = Next(), torch.randint(1, 20, (8, 9))
    tokens[::3, 6:] = 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for _ in range(10):
            optimizer.zero_grad()
            for half in tokens.chunk(2):
                targets = half[:, 1:].flip(0) if shuffles else half[:, 1:]
                loss = nn.functional.cross_entropy(model(half[:, :-1]).flatten(0, 1), targets.flatten(), ignore_index=0)
                loss.backward()
            optimizer.step()
            recorder.step(loss, batch=(half[:, :-1], half[:, 1:]))
    recorded = read_run(tmp_path).value("data.target_shift_match")
    assert recorded.points == 0 if shuffles else recorded.values[0, 0] == 1.0


class Next(nn.Module):
    """A model of tokens, and a loss as loops compute it."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, tokens):
        return self.head(self.embedding(tokens))

    def loss(self, kind, x):
        if kind == "inputs are cut":
            return nn.functional.cross_entropy(self(x[:, :-1]).transpose(1, 2), x[:, 1:])
        if kind == "logits are cut":
            return nn.functional.cross_entropy(self(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())
        if kind == "two passes":
            return sum(self.loss("logits are cut", half) for half in x.chunk(2))
        return nn.functional.cross_entropy(self(x).transpose(1, 2), x)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("inputs are cut", (1.0, 0.0)), ("logits are cut", (1.0, 0.0)), ("two passes", (1.0, 0.0)), ("no shift", (0.0, 1.0))],
)
def test_a_loop_that_shifts_one_array_itself_is_known_by_the_number_of_targets(kind, expected, tmp_path):
    model, tokens = Next(), torch.arange(20).reshape(2, 10)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for _ in range(10):
            optimizer.zero_grad()
            loss = model.loss(kind, tokens)
            loss.backward()
            recorder.after_backward()
            optimizer.step()
            recorder.step(loss, batch=(tokens, tokens))
    data = read_run(tmp_path)
    found = [data.value(f"data.{name}") for name in ("target_shift_match", "target_equals_input")]
    assert tuple(series.values[-1, 0] for series in found) == expected


def test_one_array_given_twice_says_nothing_where_nobody_saw_the_loss():
    tokens = torch.arange(20).reshape(2, 10)
    found = facts((tokens, tokens), vocabulary=20)
    assert found.token_histogram
    assert not found.target_shift_match
    assert not found.target_equals_input


def test_labels_of_a_mapping_may_still_be_shifted_by_the_model():
    tokens = torch.arange(20).reshape(2, 10)
    found = facts({"input_ids": tokens, "labels": tokens}, vocabulary=20)
    assert found.token_histogram
    assert not found.target_shift_match
    assert not found.target_equals_input


def test_labels_that_the_model_shifts_are_held_against_the_next_input():
    tokens = torch.arange(20).reshape(2, 10)
    for batch in ({"input_ids": tokens, "labels": tokens}, (tokens, tokens)):
        found = facts(batch, is_shifted_later=True)
        assert (found.target_shift_match, found.target_equals_input) == (1.0, 0.0)
    other = facts({"input_ids": tokens, "labels": tokens.flip(0)}, is_shifted_later=True)  # those of another row
    assert (other.target_shift_match, other.target_equals_input) == (0.0, 0.0)
    by_hand = facts((tokens[:, :-1], tokens[:, 1:]), is_shifted_later=True)  # the user shifts them, for a loss of their own
    assert (by_hand.target_shift_match, by_hand.target_equals_input) == (1.0, 0.0)


def test_a_model_of_transformers_says_whether_it_shifts_labels():
    from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 16, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    assert shifts_labels(GPT2LMHeadModel(GPT2Config(vocab_size=16, n_embd=8, n_layer=1, n_head=1)))
    assert not shifts_labels(BertForMaskedLM(BertConfig(**sizes)))
    assert not shifts_labels(torch.nn.Linear(1, 1))


def test_the_input_embedding_says_how_many_tokens_there_are():
    model = torch.nn.Sequential(torch.nn.Embedding(50, 4), torch.nn.Embedding(9, 4))
    assert embedded_words(model) == 50
    assert embedded_words(torch.nn.Linear(1, 1)) is None


def test_inputs_that_are_numbers_have_a_mean_and_a_deviation():
    pixels = torch.randn(4, 3, 5, 5, generator=torch.Generator().manual_seed(0)) * 2 + 1
    found = facts({"pixel_values": pixels, "labels": torch.zeros(4)})
    assert np.isclose([found.input_mean, found.input_std], [pixels.numpy().mean(), pixels.numpy().std()]).all()
    assert facts(pixels.fill_(torch.nan)).input_mean == "NaN"
    assert not facts(torch.arange(4))


def test_tokens_fall_into_buckets_of_the_vocabulary():
    inputs = torch.tensor([[0, 1, 1, 9]])
    assert token_histogram(inputs, 10) == [1, 2, 0, 0, 0, 0, 0, 0, 0, 1]
    tokens = torch.randint(0, 50_000, (64, 8), generator=torch.Generator().manual_seed(0))
    expected = np.bincount(tokens.numpy().ravel() * 256 // 50_000, minlength=256)
    assert token_histogram(tokens, 50_000) == expected.tolist()


def test_a_token_outside_the_vocabulary_is_counted_at_its_edge():
    assert token_histogram(torch.tensor([5, -1]), 3) == [1, 0, 1]


def test_the_hash_follows_the_inputs_alone():
    inputs = torch.arange(6).reshape(2, 3)
    expected = batch_hash(inputs.numpy())
    assert batch_hash((inputs, inputs)) == batch_hash(inputs) == batch_hash({"input_ids": inputs}) == expected
    assert batch_hash((inputs + 1, inputs)) != expected
    assert batch_hash(inputs.reshape(3, 2)) != expected
    assert batch_hash(None) is None
    assert batch_hash(("text",)) is None


def test_pictures_and_sound_are_the_inputs_of_their_mapping():
    pixels, mask, labels = torch.ones(2, 3), torch.ones(2), torch.zeros(2)
    assert inputs_and_targets({"attention_mask": mask, "labels": labels, "pixel_values": pixels})[0] is pixels
    assert inputs_and_targets({"kind_of_row": torch.zeros(2, 1), "pixel_values": pixels, "labels": labels})[0] is pixels
    series = {"past_time_feat": torch.zeros(2, 9, 4), "feat_static_cat": torch.zeros(2, 40), "past_target": pixels}
    assert inputs_and_targets(series)[0] is pixels
    assert inputs_and_targets({"labels": labels})[0] is None
    assert batch_hash({"input_features": pixels, "labels": labels}) == batch_hash(pixels)


def test_batches_come_as_tensors_pairs_or_mappings():
    a, b = torch.ones(1), torch.zeros(1)
    assert [
        inputs_and_targets(a),
        inputs_and_targets((a, b)),
        inputs_and_targets([a]),
        inputs_and_targets({"input_ids": a, "labels": b}),
    ] == [(a, None), (a, b), (a, None), (a, b)]


def test_images_have_no_tokens():
    found = facts((torch.rand(2, 3), torch.tensor([0, 1])), input_hash="blake2b:00", vocabulary=5)
    assert found.input_hash == "blake2b:00"
    assert not found.token_histogram
    assert not found.target_shift_match


def test_nothing_known_is_no_section():
    assert facts(None) is None
    assert facts(None, batch_id=3, source="shard-7").source == "shard-7"


def test_the_scale_of_inputs_in_bfloat16_is_that_of_their_numbers():
    inputs = torch.randn(64, 8, generator=torch.Generator().manual_seed(0)).bfloat16()
    numbers = inputs.double().numpy()
    found = facts((inputs, torch.zeros(64, dtype=torch.long)))
    assert abs(found.input_mean - numbers.mean()) < 1e-6
    assert abs(found.input_std - numbers.std()) < 1e-6


class KeywordModel(nn.Module):
    """A model that takes its inputs by place or by name, beside something that is none."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, inputs=None, attention_mask=None, *, scale=1.0):
        return self.layer(scale * inputs)


def trained(tmp_path, read, give, **finished):
    """Return a checkpoint's facts on its batch; `give` calls the model on numbers of mean 3 and deviation 2."""
    torch.manual_seed(0)
    model = KeywordModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = 3 + 2 * torch.randn(64, 4)
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for _ in range(10):
            optimizer.zero_grad()
            with torch.no_grad():
                model(100 + inputs)  # an evaluation inside the step
            loss = give(model, inputs).square().mean()
            loss.backward()
            optimizer.step()
            recorder.step(loss, **{name: value(inputs) for name, value in finished.items()})
    return read(tmp_path, 10).data, inputs.numpy()


@pytest.mark.parametrize(
    "give",
    [
        lambda model, inputs: model(inputs),
        lambda model, inputs: model(attention_mask=torch.ones(64, 4), inputs=inputs, scale=1.0),
        lambda model, inputs: model(inputs) + model(inputs - 50),  # the second call is none of the first batch's
    ],
)
def test_where_no_batch_is_passed_the_first_inputs_of_the_model_tell(tmp_path, read, give):
    found, inputs = trained(tmp_path, read, give)
    assert np.isclose([found.input_mean, found.input_std], [inputs.mean(), inputs.std()], rtol=1e-5).all()
    assert not found.duplicate_share  # what a model takes need not be rows of a data set
    assert not found.input_hash


def test_a_batch_that_is_passed_goes_before_what_the_model_takes(tmp_path, read):
    found, inputs = trained(tmp_path, read, lambda model, inputs: model(inputs), batch=lambda inputs: (2 * inputs,))
    assert np.isclose(found.input_mean, 2 * inputs.mean(), rtol=1e-5)
    assert found.input_hash


def test_tokens_that_a_model_takes_are_counted(tmp_path, read, tiny):
    model = tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    tokens = torch.arange(40).reshape(4, 10) % 17
    with Recorder(model, tmp_path, optimizer=optimizer) as recorder:
        for _ in range(10):
            optimizer.zero_grad()
            loss = model(tokens).square().mean()
            loss.backward()
            optimizer.step()
            recorder.step(loss)
    assert read(tmp_path, 10).data.token_histogram == np.bincount(tokens.numpy().reshape(-1), minlength=17).tolist()


class ForeignArray:
    """An array of another library, as JAX's: it has a type and a shape, and NumPy can read it."""

    def __init__(self, values):
        self.values = np.asarray(values)
        self.dtype, self.shape, self.ndim = self.values.dtype, self.values.shape, self.values.ndim

    def __array__(self, dtype=None, copy=None):
        return self.values


def test_arrays_of_other_libraries_are_read_as_those_of_numpy():
    tokens = np.arange(12).reshape(3, 4)
    assert batch_hash((ForeignArray(tokens), ForeignArray(tokens))) == batch_hash((tokens, tokens))
    inputs, targets = inputs_and_targets({"input_ids": ForeignArray(tokens), "labels": ForeignArray(tokens + 1)})
    assert (inputs == tokens).all()
    assert (targets == tokens + 1).all()
