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
    "loss": "损失 損失 손실",
    "train": "训练 訓練 学習 학습 훈련",
    "val": "验证 検証 검증",
    "test": "测试 테스트",
    "epoch": "轮次 エポック 에폭 에포크",
    "step": "步数 步 ステップ 스텝",
    "accuracy": "准确率 正解率 정확도",
    "learning_rate": "学习率 学習率 학습률",
}
_LINK = r"[\W_]{1,4}(?:d|de|di)?[\W_]{0,4}"  # as in taux d'apprentissage
_LINKS = re.compile(_LINK)


def _plain(text: str) -> str:
    """Return a text in lower case and without accents."""
    return "".join(letter for letter in unicodedata.normalize("NFKD", text.lower()) if not unicodedata.combining(letter))


_ENGLISH = {_plain(word): english for english, words in (*_WORDS.items(), *_WITHOUT_GAPS.items()) for word in words.split()}
_WHOLE = "|".join(_plain(words).replace("_", _LINK).replace(" ", "|") for words in _WORDS.values())
_ANYWHERE = "|".join(sorted(_plain(" ".join(_WITHOUT_GAPS.values())).split(), key=len, reverse=True))
_FOREIGN = re.compile(rf"(?<![^\W\d_])(?:{_WHOLE})(?![^\W\d_])|{_ANYWHERE}")


def in_english(name: str) -> str:
    """Return the name of a column with known foreign words translated to English; other names are unchanged.

    >>> in_english("Validierungsverlust"), in_english("Taux d'apprentissage"), in_english("训练损失")
    ('val_loss', 'learning_rate', 'train_loss')
    >>> in_english("エポック"), in_english("trainLoss"), in_english("expert_loss")
    ('epoch', 'trainLoss', 'expert_loss')
    """
    plain = _plain(name)
    english = _FOREIGN.sub(lambda found: f" {_ENGLISH[_LINKS.sub('_', found[0])]} ", plain)
    return name if english == plain else re.sub(r"[\s_]+", "_", english.strip())


_COUNTED = re.compile(r"第\s?(\d{1,12})\s?(轮|步)")
_LOSS_OF = re.compile(r"\b(loss|accuracy) {1,3}(?:(?:de|di|da|do|del|na|на) {1,3})?(train|val|test|validation|test) ")
_LOSS_WORDS = tuple(word for words in (_WORDS["loss"], _WITHOUT_GAPS["loss"]) for word in words.split())


def lines_in_english(text: str) -> str | None:
    """Return the lines of a log with known foreign words translated to English; None where no word for a loss is among them.

    >>> lines_in_english("Époque 3 : perte = 0.5, perte de validation = 0.6")
    ' epoch  3 :  loss  = 0.5,  validation loss = 0.6'
    >>> lines_in_english("第3轮 训练损失: 0.5")
    ' epoch  3   train  loss : 0.5'
    """
    plain = _plain(text)
    if not any(_plain(word) in plain for word in _LOSS_WORDS):
        return None
    counted = _COUNTED.sub(lambda found: f"{'轮次' if found[2] == '轮' else '步数'} {found[1]} ", plain)
    english = _FOREIGN.sub(lambda found: f" {_ENGLISH[_LINKS.sub('_', found[0])]} ", counted)
    return None if english == counted else _LOSS_OF.sub(r"\2 \1 ", english)
