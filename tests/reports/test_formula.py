"""TeX to text: every construct by hand, and every formula of the catalogue without a rest of TeX."""
# ruff: noqa: RUF001  the letters of mathematics are meant

import pytest

from ckaudit.explain import explain, known_names
from ckaudit.reports.formula import readable
from tests.loops import for_each

BY_HAND = [
    (r"\tfrac1N \sum_i x_i", "1/N Σᵢ xᵢ", "1/N sum_i x_i"),
    (r"\frac{a + b}{c}", "(a + b) / c", "(a + b) / c"),
    (r"\frac{\max(a, b)}{|x - y|}", "max(a, b) / |x - y|", "max(a, b) / |x - y|"),
    (r"p \log \frac{p}{q}", "p log (p/q)", "p log (p/q)"),
    (r"\sum_{i=1}^{n} \mathbb{1}[\,x_i < 1\,]", "Σ_(i=1..n) 1[xᵢ < 1]", "sum_(i=1..n) 1[x_i < 1]"),
    (r"\lVert \Delta W \rVert_F^2", "‖ΔW‖_F²", "||dW||_F^2"),
    (r"\lVert \nabla_p L \rVert", "‖∇ₚ L‖", "||grad_p L||"),
    (r"\sqrt S + \sqrt{a^2 + b^2}", "√S + √(a² + b²)", "sqrt(S) + sqrt(a^2 + b^2)"),
    (r"W^\top W v_{k+1}", "Wᵀ W vₖ₊₁", "W^T W v_(k+1)"),
    (r"L_{val} - L_{t-50}", "L_val - Lₜ₋₅₀", "L_val - L_(t-50)"),
    (r"w_i^{ref} \ne 10^{-3}", "wᵢ^(ref) ≠ 10⁻³", "w_i^(ref) != 10^-3"),
    (r"\alpha_{q,k} \in \{0, 1\}", "α_(q,k) ∈ {0, 1}", "alpha_(q,k) in {0, 1}"),
    (r"\operatorname{tr} H \approx \bar A", "tr H ≈ Ā", "tr H ~= mean_A"),
    (r"a = b, \qquad b = \text{time in all}", "a = b\nb = time in all", "a = b\nb = time in all"),
    (r"\neg\,\mathrm{isfinite}(x)", "¬ isfinite(x)", "not isfinite(x)"),
    (r"0 \le H \le \log K!", "0 ≤ H ≤ log K!", "0 <= H <= log K!"),
    (r"\frac{\langle a, b \rangle}{\lVert a \rVert \lVert b \rVert}", "⟨a, b⟩ / (‖a‖ ‖b‖)", "<a, b> / (||a|| ||b||)"),
    (r"\exp\!\big(\tfrac12 x\big)", "exp(1/2 x)", "exp(1/2 x)"),
    (r"\lfloor i n / 32 \rfloor \to \gamma", "⌊i n / 32⌋ → γ", "floor(i n / 32) -> gamma"),
    (r"100\,000 \pm 4\%", "100 000 ± 4%", "100 000 +- 4%"),
    (r"t^* = \min\{ t : g > 0 \}", "t* = min { t : g > 0 }", "t* = min { t : g > 0 }"),
]


@pytest.mark.parametrize(("tex", "unicode", "ascii_only"), BY_HAND, ids=[row[0] for row in BY_HAND])
def test_a_construct_becomes_text(tex, unicode, ascii_only):
    assert readable(tex) == unicode
    assert readable(tex, unicode=False) == ascii_only


@pytest.mark.parametrize("tex", [r"\oint_C f", r"\frac{a", r"x_", r"\text x"])
def test_what_cannot_be_translated_stays_as_it_is(tex):
    assert readable(tex) == tex


@for_each("name", [name for name in known_names() if name.islower()])
def test_no_formula_of_the_catalogue_keeps_a_command(name):
    for page in explain([name]):
        for formula in page.formulas:
            assert "\\" not in readable(formula.tex)
            assert readable(formula.tex, unicode=False).isascii()
