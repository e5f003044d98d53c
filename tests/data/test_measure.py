"""A whole sample: every value against NumPy, SciPy's definitions by hand, or plain counting."""

import json
from math import log

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from ckaudit.contract.schema.raw_measurements import Measures
from ckaudit.data import Tools, measure
from ckaudit.data.document import COLUMNS
from ckaudit.data.gauges import kl_divergence
from ckaudit.material.files import sample_files
from ckaudit.material.records import Reading
from ckaudit.run.robust import wilson_interval
from tests.data.corpus import docstrings, write

SENTENCES = {
    "en": "The committee agreed to publish the results of the second survey before the end of the month.",
    "de": "Der Ausschuss beschloss, die Ergebnisse der zweiten Umfrage noch vor Monatsende zu veröffentlichen.",
    "fr": "Le comité a décidé de publier les résultats de la deuxième enquête avant la fin du mois.",
    "ru": "Комитет решил опубликовать результаты второго опроса до конца месяца.",
}


def of(path, **named):
    tools = Tools(**{name: named.pop(name) for name in ("tokenizer", "classifier", "pad_id") if name in named})
    others = {name: Reading(sample_files([each]), COLUMNS) for name, each in named.items()}
    found = measure(Reading(sample_files([path]), COLUMNS), "x", tools=tools, **others)
    return found, {each.name: each for each in found.measures}, {each.name: each for each in found.missing}


def test_shares_are_of_tokens(tmp_path):
    rows = [
        {"text": SENTENCES["en"] * 3, "source": "web", "tokens": 30},
        {"text": SENTENCES["de"] * 3, "source": "books", "tokens": 50},
        {"text": SENTENCES["fr"] * 3, "source": "web", "tokens": 15},
        {"text": SENTENCES["ru"] * 3, "tokens": 5},
    ]
    _, values, _ = of(write(tmp_path / "a.jsonl", rows))
    languages = {name.partition("/")[2]: each.value for name, each in values.items() if name.startswith("language_share/")}
    assert languages == pytest.approx({"de": 0.5, "en": 0.3, "fr": 0.15, "ru": 0.05})
    assert values["source_mix_share/web"].value == pytest.approx(45 / 95)
    assert values["source_mix_share/books"].value == pytest.approx(50 / 95)
    assert values["source_mix_share/web"].detail == "without 1 of 4 documents"


def test_without_tokens_there_are_no_shares_and_nothing_is_zero(tmp_path):
    found, values, missing = of(write(tmp_path / "a.jsonl", [{"text": SENTENCES["en"], "source": "web"}]))
    assert {"source_mix_share", "language_share", "bytes_per_token", "seq_len_p50_p95", "pad_fraction", "token_kl_drift"} <= set(
        missing
    )
    assert "By bytes: web 100.0%" in missing["source_mix_share"].detail
    assert set(values) <= {each.name for each in found.measures if each.name.startswith("pii_hit_rate")}


def test_unclear_and_wordless_texts_are_no_language(tmp_path):
    rows = [{"text": text, "tokens": 1} for text in ("Hi", "%% ++ == ## 12 34", SENTENCES["en"])]
    _, values, _ = of(write(tmp_path / "a.jsonl", rows))
    assert {name for name in values if name.startswith("language_share")} == {"language_share/en", "language_share/und"}


def test_lengths_bytes_and_padding_are_those_of_numpy(tmp_path):
    random = np.random.default_rng(0)
    lengths = random.integers(1, 500, 97)
    rows = []
    for length in lengths:
        ids = random.integers(1, 100, int(length)).tolist()
        mask = [1] * len(ids) + [0] * (512 - len(ids))
        rows.append({"text": "ä" * len(ids), "input_ids": ids + [0] * (512 - len(ids)), "attention_mask": mask})
    _, values, _ = of(write(tmp_path / "a.jsonl", rows))
    p50, p95 = np.percentile(lengths, [50, 95])
    assert (values["seq_len_p50_p95/p50"].value, values["seq_len_p50_p95/p95"].value) == pytest.approx((p50, p95))
    assert values["bytes_per_token"].value == 2
    assert values["pad_fraction"].value == pytest.approx(1 - lengths.sum() / (97 * 512))
    for row in rows:
        del row["attention_mask"]
    _, by_id, _ = of(write(tmp_path / "a.jsonl", rows), pad_id=0)
    assert by_id["pad_fraction"].value == values["pad_fraction"].value
    assert by_id["seq_len_p50_p95/p50"].value == values["seq_len_p50_p95/p50"].value
    assert "pad_fraction" in of(write(tmp_path / "b.jsonl", rows))[2]


def test_drift_is_the_divergence_by_hand(tmp_path):
    """Tokens 1, 1, 1, 2 against 1, 2, 2, 3; with one added to each of three: (4, 2, 1) / 7 and (2, 3, 2) / 7."""
    by_hand = 4 / 7 * log(4 / 2) + 2 / 7 * log(2 / 3) + 1 / 7 * log(1 / 2)
    now = write(tmp_path / "a.jsonl", [{"tokens": [1, 1]}, {"tokens": [1, 2]}])
    before = write(tmp_path / "b.jsonl", [{"tokens": [1, 2, 2, 3]}])
    _, values, _ = of(now, reference=before)
    assert values["token_kl_drift"].value == pytest.approx(by_hand, rel=1e-12)
    assert values["seq_len_p50_p95/p50"].reference == 4
    assert of(now, reference=now)[1]["token_kl_drift"].value == 0


def test_drift_of_many_tokens_is_that_of_numpy():
    from collections import Counter

    random = np.random.default_rng(1)
    p, q = random.integers(1, 50, 1000), random.integers(1, 50, 1000)
    shares, others = (p + 1) / (p + 1).sum(), (q + 1) / (q + 1).sum()
    expected = (shares * np.log(shares / others)).sum()
    assert kl_divergence(Counter(dict(enumerate(p.tolist()))), Counter(dict(enumerate(q.tolist())))) == pytest.approx(expected)


def test_what_is_missing_is_named_by_what_is_missing(tmp_path):
    tokens_only = write(tmp_path / "a.jsonl", [{"body": "x", "tokens": 20}])
    assert of(tokens_only)[2]["bytes_per_token"].detail.startswith("no document has a text")
    apart = write(tmp_path / "b.jsonl", [{"text": "x y z"}, {"tokens": 20}])
    assert of(apart)[2]["bytes_per_token"].detail == "no document has both a text and tokens"
    assert of(apart, validation=tokens_only)[2]["train_val_overlap"].detail == "the validation set has no words"
    assert of(tokens_only, validation=apart)[2]["train_val_overlap"].detail == "the sample has no words"
    none = write(tmp_path / "c.jsonl", [{"text": "x", "source": "web", "tokens": 0}])
    assert of(none)[2]["source_mix_share"].detail == "shares are of tokens, and the documents have 0 of them"


def test_rejected_documents_count_for_nothing_else(tmp_path):
    rows = [
        {"text": docstrings()[0], "reject": ["short", "toxic"], "toxicity": 0.9},
        {"text": docstrings()[0], "reject": "short"},
        {"text": docstrings()[0], "reject": [], "toxicity": 0.5},
        {"text": docstrings()[1], "filter": False, "toxicity": 0.49},
        {"text": docstrings()[2], "toxicity": 0.1},
    ]
    found, values, _ = of(write(tmp_path / "a.jsonl", rows))
    rates = {name: each.value for name, each in values.items() if each.row == "M31"}
    assert rates == {"filter_reject_rate": 40, "filter_reject_rate/short": 40, "filter_reject_rate/toxic": 20}
    assert values["filter_reject_rate"].detail == "1 of 5 documents name no filter, and count as kept"
    assert values["near_dup_rate"].value == 0
    assert (values["data_toxicity_rate"].value, values["data_toxicity_rate"].points) == (100 / 3, 3)
    assert (values["data_toxicity_rate"].low, values["data_toxicity_rate"].high) == tuple(
        100 * end for end in wilson_interval(1, 3)
    )
    assert found.notes == ["for filter_reject_rate only: 2 rejected documents"]


@pytest.mark.parametrize("kept", [{}, {"reject": None}, {"reject": ""}, {"reject": False}, {"reject": []}])
def test_two_rejected_of_twenty_are_a_tenth_however_the_kept_ones_are_marked(tmp_path, kept):
    rows = [{"text": text, **({"reject": "short"} if number < 2 else kept)} for number, text in enumerate(docstrings()[:20])]
    _, values, _ = of(write(tmp_path / "a.jsonl", rows))
    rates = [values[name] for name in ("filter_reject_rate", "filter_reject_rate/short")]
    assert [(each.value, each.points) for each in rates] == [(10, 20)] * 2
    assert (rates[0].low, rates[0].high) == tuple(100 * end for end in wilson_interval(2, 20))


def test_what_is_said_of_filters_and_cannot_be_read_counts_neither_way(tmp_path):
    _, values, _ = of(write(tmp_path / "a.jsonl", [{"text": "x", "reject": "short"}, {"text": "y", "reject": 5}, {"text": "z"}]))
    assert (values["filter_reject_rate"].value, values["filter_reject_rate"].points) == (50, 2)
    assert "filter_reject_rate" in of(write(tmp_path / "b.jsonl", [{"text": "x", "reject": 5}, {"text": "y"}]))[2]


def test_a_classifier_scores_what_has_no_score(tmp_path):
    seen = []

    def classify(texts):
        seen.extend(texts)
        return [0.9 if "bad" in text else 0.1 for text in texts]

    rows = [{"text": f"bad {number}" if number % 4 == 0 else f"good {number}"} for number in range(200)]
    rows += [{"text": "scored already", "score": 1.0}, {"tokens": 3}, {"text": "bad, and thrown out", "reject": True}]
    _, values, _ = of(write(tmp_path / "a.jsonl", rows), classifier=classify)
    assert (values["data_toxicity_rate"].value, values["data_toxicity_rate"].points) == (5100 / 201, 201)
    assert len(seen) == 200


def test_scores_that_are_no_probabilities_are_told_and_left_out(tmp_path):
    found, _, missing = of(write(tmp_path / "a.jsonl", [{"text": "x", "score": 3.7}, {"text": 5}]))
    assert "data_toxicity_rate" in missing
    assert [(each.code, each.line) for each in found.findings] == [("DAT004", 1), ("DAT004", 2)]


def test_a_tokenizer_counts_as_it_does_by_itself(tmp_path):
    tokenizer = Tokenizer(models.BPE(unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        docstrings()[:50], trainers.BpeTrainer(vocab_size=500, special_tokens=["?"], show_progress=False)
    )
    tokenizer.enable_truncation(8)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    tokenizer.no_truncation()
    texts = docstrings()[50:90]
    path = write(tmp_path / "a.jsonl", [{"text": text, "source": "docs"} for text in texts])
    _, values, _ = of(path, tokenizer=tmp_path / "tokenizer.json", reference=path)
    counts = [len(tokenizer.encode(text).ids) for text in texts]
    assert values["seq_len_p50_p95/p95"].value == pytest.approx(np.percentile(counts, 95))
    assert values["bytes_per_token"].value == sum(len(text.encode()) for text in texts) / sum(counts)
    assert values["source_mix_share/docs"].value == 1
    assert values["token_kl_drift"].value == 0


def test_personal_data_is_counted_by_document_and_never_shown(tmp_path):
    rows = [{"text": "ann@ckaudit.dev and bob@ckaudit.dev"}, {"text": "+49 30 901820, ann@ckaudit.dev"}, {"text": "nothing"}]
    found, values, _ = of(write(tmp_path / "a.jsonl", rows))
    rates = {name: each.value for name, each in values.items() if each.row == "M51"}
    assert rates["pii_hit_rate"] == rates["pii_hit_rate/email"] == 200 / 3
    assert rates["pii_hit_rate/phone"] == 100 / 3
    assert rates["pii_hit_rate/iban"] == 0
    assert "ann@" not in json.dumps(found, default=str)


def test_addresses_that_are_nobodys_are_not_counted_and_said_to_be(tmp_path):
    texts = [
        "ann@example.com",
        "bob@mail.example.org, 192.0.2.44",
        "ann@example.com and bob@ckaudit.dev",
        "icon@2x.png",
        "nothing",
    ]
    _, values, _ = of(write(tmp_path / "a.jsonl", [{"text": text} for text in texts]))
    assert (values["pii_hit_rate"].value, values["pii_hit_rate/email"].value, values["pii_hit_rate/ip"].value) == (20, 20, 0)
    assert "; 2 more documents with nothing but reserved addresses (example.com" in values["pii_hit_rate"].detail
    _, values, _ = of(write(tmp_path / "b.jsonl", [{"text": "nothing"}]))
    assert "reserved" not in values["pii_hit_rate"].detail


def test_the_same_sample_gives_the_same_document(tmp_path):
    path = write(tmp_path / "a.jsonl", [{"text": text, "source": "docs", "tokens": 7} for text in docstrings()[:60] * 2])
    one, other = of(path)[0], of(path)[0]
    assert isinstance(one, Measures)
    assert one == other
    assert [each.row for each in one.measures] == sorted(each.row for each in one.measures)
