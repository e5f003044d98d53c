"""Names and lines in German, French, Spanish, Portuguese, Italian, Turkish, Russian, Chinese, Japanese and Korean."""

# ruff: noqa: RUF001  letters of these languages are meant

import re
import unicodedata

_WORDS = {
    "loss": "verlust perte perdida perda perdita kayıp kaybı потери потеря",
    "train": "entrainement entrenamiento treinamento treino addestramento egitim обучение обучения обучении",
    "val": "validierung validacion validacao validazione dogrulama валидация валидации вал",
    "epoch": "epoche epoque epoca epok эпоха",
    "step": "schritt etape paso passo adım шаг",
    "episode": "episodio эпизод",
    "reward": "belohnung recompense recompensa ricompensa награда",
    "accuracy": "genauigkeit exactitude exactitud acuracia accuratezza dogruluk точность",
    "learning_rate": "lernrate taux_apprentissage tasa_aprendizaje taxa_aprendizado tasso_apprendimento",
    "train_loss": "trainingsverlust",
    "val_loss": "validierungsverlust",
    "test_loss": "testverlust",
    "train_accuracy": "trainingsgenauigkeit",
    "val_accuracy": "validierungsgenauigkeit",
    "test_accuracy": "testgenauigkeit",
}
_WITHOUT_GAPS = {
    "loss": "损失值 损失函数 损失 損失 손실",
    "train": "训练 訓練 学習 학습 훈련",
    "val": "验证 検証 검증",
    "test": "测试 테스트",
    "epoch": "轮次 轮数 エポック 에폭 에포크",
    "step": "步数 步 ステップ 스텝",
    "accuracy": "准确率 准确度 正解率 정확도",
    "learning_rate": "学习率 学習率 학습률",
    "episode": "回合 エピソード 에피소드",
    "reward": "奖励 報酬 보상",
    "return": "回报",
    "mean": "平均 평균",
    "total": "总",
}
_IN_LINES = {"batch": "批次 バッチ 배치", "": "当前 目前 現在"}
"""Words that only lines of text have, of which some add nothing."""
_LINK = r"[\W_]{1,4}(?:d|de|di)?[\W_]{0,4}"  # as in taux d'apprentissage
_LINKS = re.compile(_LINK)
_WHICH = {"total": "total", "media": "mean", "promedio": "mean", "moyenne": "mean"}
_CAMEL = re.compile(r"(?<=[a-zà-ÿ])(?=[A-Z])")
_ACCENTS = re.compile(r"[\u0300-\u036f\u3099\u309a]+")


def _plain(text: str) -> str:
    """Return a text in lower case and without accents."""
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", text.lower()))


_ENGLISH = {_plain(word): english for english, words in (*_WORDS.items(), *_WITHOUT_GAPS.items()) for word in words.split()}
_WHOLE = "|".join(_plain(words).replace("_", _LINK).replace(" ", "|") for words in _WORDS.values())
_ANYWHERE = "|".join(sorted(_plain(" ".join(_WITHOUT_GAPS.values())).split(), key=len, reverse=True))
_FOREIGN = re.compile(rf"(?<![^\W\d_])(?:{_WHOLE})(?![^\W\d_])|{_ANYWHERE}")


def in_english(name: str) -> str:
    """Return the name of a column with known foreign words translated to English; other names are unchanged.

    >>> in_english("Validierungsverlust"), in_english("Taux d'apprentissage"), in_english("训练损失")
    ('val_loss', 'learning_rate', 'train_loss')
    >>> in_english("エポック"), in_english("RecompensaTotal"), in_english("trainLoss"), in_english("expert_loss")
    ('epoch', 'total_reward', 'trainLoss', 'expert_loss')
    """
    plain = _plain(_CAMEL.sub("_", name))
    english = _FOREIGN.sub(_translated, plain)
    if english == plain:
        return name
    translated = re.sub(r"[\s_]+", "_", english.strip())
    kind, _, which = translated.partition("_")
    return f"{_WHICH[which]}_{kind}" if which in _WHICH else translated  # these languages put total behind reward


_IN_TEXT = {word: english for english, words in (*_WITHOUT_GAPS.items(), *_IN_LINES.items()) for word in words.split()}
_WORD = re.compile("|".join(sorted(_IN_TEXT, key=len, reverse=True)))
_WORDS_TOGETHER = re.compile(rf"(?:{_WORD.pattern})+")
_NUMBERED = re.compile(r"第 ?(\d{1,9}) ?个?(轮|回合|步)(?:训练)?")
_COUNTED = {"轮": "epoch", "回合": "episode", "步": "step"}
_EAST_ASIAN = re.compile(r"[\u3041-\u30ff\u4e00-\u9fff\uac00-\ud7a3]")
_WIDE_MARKS = {0xFEE0 + code: code for code in range(ord("!"), ord("~") + 1)}  # as in Chinese text


def lines_in_english(text: str) -> str:
    r"""Return lines with known Chinese, Japanese and Korean words in English and with plain marks; other text is unchanged.

    >>> lines_in_english("第3轮\uff1a训练损失\uff1a0.31\uff0c当前准确率: 58%")
    'epoch 3 : train loss :0.31, accuracy : 58%'
    >>> lines_in_english("█████ 第"), lines_in_english("Époque 3, perte 0.31")
    ('█████ 第', 'Époque 3, perte 0.31')
    """
    if text.isascii() or not _EAST_ASIAN.search(text):
        return text
    text = _NUMBERED.sub(lambda counted: f"{_COUNTED[counted[2]]} {counted[1]} ", text.translate(_WIDE_MARKS))
    return _WORDS_TOGETHER.sub(
        lambda words: f" {' '.join(filter(None, map(_IN_TEXT.__getitem__, _WORD.findall(words[0]))))} ", text
    )


HEAD = 2**16
"""Number of letters that show whether a log is in one of these languages."""

_LOSS_OF = re.compile(r"\b(loss|accuracy) {1,3}(?:(?:de|di|da|do|del|na|на) {1,3})?(train|val|test|validation) ")


def log_in_english(text: str) -> str | None:
    """Return a log with known words of all these languages in English; None where no word for a loss is in its first lines.

    English has some of these words too, with other meanings: only what cannot be read as it is should be translated.

    >>> log_in_english("Époque 3 : perte = 0.5, perte de validation = 0.6")
    ' epoch  3 :  loss  = 0.5,  validation loss = 0.6'
    """
    if " loss " not in _FOREIGN.sub(_translated, _plain(lines_in_english(text[:HEAD]))):
        return None
    return _LOSS_OF.sub(r"\2 \1 ", _FOREIGN.sub(_translated, _plain(lines_in_english(text))))


def _translated(found: re.Match[str]) -> str:
    return f" {_ENGLISH[_LINKS.sub('_', found[0])]} "
