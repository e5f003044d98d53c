"""The corpora of the lab: nothing held out is trained on, shares are kept, and parts make up the whole."""

from collections import Counter
from random import Random

import pytest
import torch

from ckaudit.lab.corpora import open_corpus
from ckaudit.lab.corpora.sources import TEXTS
from ckaudit.lab.corpora.text import WORD, Characters, learn, pair_tokens
from ckaudit.lab.plan import Data

SOURCES = [(corpus, source) for corpus, sources in TEXTS.items() for source in sources]


@pytest.mark.parametrize(("corpus", "source"), SOURCES)
def test_no_line_that_is_held_out_is_ever_trained_on(corpus: str, source: str) -> None:
    rng, draw = Random(0), TEXTS[corpus][source]
    held, trained = ({draw(rng, held=side).text for _ in range(1500)} for side in (True, False))
    assert len(held) > 100
    assert len(trained) > 500
    assert not held & trained


@pytest.mark.parametrize(("corpus", "length"), [("verbs", 64), ("mixture", 64), ("letters", 80)])
def test_no_row_that_is_held_out_is_trained_on_where_rows_are_cut_short(corpus: str, length: int) -> None:
    lab = open_corpus(Data(corpus=corpus, length=length, batch_size=32), seed=0)
    held = {tuple(row) for row in lab.held_out().inputs.tolist()}
    trained = {tuple(row) for step in range(1, 201) for row in lab.batch(step).inputs.tolist()}
    assert len(held) > 110
    assert not held & trained


@pytest.mark.parametrize("corpus", ["verbs", "mixture", "letters", "points", "shapes"])
def test_parts_of_a_batch_make_up_the_batch(corpus: str) -> None:
    lab = open_corpus(Data(corpus=corpus, batch_size=8, length=20), seed=3)
    whole, parts = lab.batch(5), [lab.batch(5, part=part, parts=4) for part in range(4)]
    assert torch.equal(whole.inputs, torch.cat([part.inputs for part in parts]))
    assert torch.equal(whole.targets, torch.cat([part.targets for part in parts]))
    assert not torch.equal(whole.inputs, lab.batch(6).inputs)


@pytest.mark.parametrize("corpus", ["verbs", "points"])
def test_a_training_set_comes_whole_in_each_epoch_and_in_another_order(corpus: str) -> None:
    lab = open_corpus(Data(corpus=corpus, batch_size=4, length=20, rows=12), seed=0)
    epochs = [torch.cat([lab.batch(step).inputs for step in steps]).flatten(1) for steps in ((1, 2, 3), (4, 5, 6))]
    first, second = ({tuple(row.tolist()) for row in epoch} for epoch in epochs)
    assert len(first) == 12
    assert first == second
    assert not torch.equal(*epochs)


@pytest.mark.parametrize("corpus", ["verbs", "shapes"])
def test_with_nothing_held_apart_evaluations_are_on_rows_that_are_trained_on(corpus: str) -> None:
    lab = open_corpus(Data(corpus=corpus, batch_size=8, length=20, held_rows=2, held_apart=False), seed=0)
    seen = {tuple(row.flatten().tolist()) for row in lab.batch(1).inputs}
    assert {tuple(row.flatten().tolist()) for row in lab.held_out().inputs} <= seen


def test_each_batch_has_the_shares_that_are_asked_for() -> None:
    shares = {"sums": 0.5, "recipes": 0.25, "visits": 0.25}
    lab = open_corpus(Data(corpus="mixture", batch_size=32, length=30, shares=shares), seed=0)
    for step in range(1, 20):
        starts = Counter("sum" if row[1] < 27 else "other" for row in lab.batch(step).inputs.tolist())  # a digit
        assert abs(starts["sum"] / 32 - 0.5) < 0.07


def test_a_batch_has_a_source_only_where_it_has_one() -> None:
    assert open_corpus(Data(corpus="mixture"), seed=0).batch(1).source is None
    assert open_corpus(Data(corpus="mixture", shares={"sums": 1.0}), seed=0).batch(1).source == "sums"


def test_slices_of_the_held_out_rows_are_the_sources_and_cover_everything() -> None:
    held = open_corpus(Data(corpus="letters", length=40), seed=0).held_out()
    assert set(held.slices) == set(TEXTS["letters"])
    assert torch.equal(torch.stack(list(held.slices.values())).sum(0), torch.ones_like(held.targets))


@pytest.mark.parametrize("corpus", ["mixture", "letters"])
def test_tokens_are_those_of_the_tokenizers_library(corpus: str) -> None:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

    rng = Random("another sample")
    texts = [draw(rng, held=False).text for draw in TEXTS[corpus].values() for _ in range(200)]
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.Split(Regex(WORD.pattern), "isolated")
    alphabet = [chr(code) for code in range(32, 127)]
    library.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False, special_tokens=["\n"])
    )
    ours = type(pair_tokens(corpus))(learn(texts, 300 - Characters.count))
    assert ours.count == library.get_vocab_size()
    for text in texts[::20]:
        assert ours.encode(text) == library.encode(text).ids


def test_tokens_give_back_their_text() -> None:
    tokens = pair_tokens("mixture")
    pieces = [chr(31 + code) for code in range(Characters.count)]
    for left, right in tokens.merges:
        pieces.append(pieces[left] + pieces[right])
    text = TEXTS["mixture"]["visits"](Random(0), held=True).text
    codes = tokens.encode(text)
    assert "".join(pieces[code] for code in codes) == text
    assert len(codes) < 0.8 * len(text)
    assert tokens.count == 352


def test_no_plane_tells_the_points_apart() -> None:
    lab = open_corpus(Data(corpus="points", held_rows=250), seed=0)
    batch = lab.held_out()
    inputs = torch.cat([batch.inputs, torch.ones(len(batch.inputs), 1)], 1)
    wanted = torch.nn.functional.one_hot(batch.targets).float()
    right = (inputs @ torch.linalg.lstsq(inputs, wanted).solution).argmax(1) == batch.targets
    assert right.float().mean() < 0.6
