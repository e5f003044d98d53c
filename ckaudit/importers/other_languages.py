"""Names of columns in other languages: German, French, Spanish, Portuguese, Italian, Russian, Chinese and Japanese."""

import re
import unicodedata

_WORDS = {
    "loss": "verlust perte perdida perda perdita потери",
    "train": "entrainement entrenamiento treinamento treino addestramento обучение обучения",
    "val": "validierung validacion validacao validazione валидация валидации",
    "epoch": "epoche epoque epoca эпоха",
    "step": "schritt etape paso passo шаг",
    "accuracy": "genauigkeit exactitude exactitud acuracia accuratezza точность",
    "learning_rate": "lernrate taux_apprentissage tasa_aprendizaje taxa_aprendizado tasso_apprendimento",
    "train_loss": "trainingsverlust",
    "val_loss": "validierungsverlust",
    "test_loss": "testverlust",
    "train_accuracy": "trainingsgenauigkeit",
    "val_accuracy": "validierungsgenauigkeit",
    "test_accuracy": "testgenauigkeit",
}
_WITHOUT_GAPS = {
    "loss": "损失 損失",
    "train": "训练 訓練 学習",
    "val": "验证 検証",
    "test": "测试",
    "epoch": "轮次 エポック",
    "step": "步数 步 ステップ",
    "accuracy": "准确率 正解率",
    "learning_rate": "学习率 学習率",
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
