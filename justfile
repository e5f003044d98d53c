# Tasks of this repository; `just` lists them.

python := ".venv/bin/python"

default:
    @just --list

# a fresh environment with everything
install:
    python3 -m venv .venv
    .venv/bin/pip install --quiet torch==2.13.0 -e '.[dev]'

# what CI runs: style, types and tests
check: lint types test

# the oldest and the newest libraries on each Python that is here, in clean environments; needs uv
versions *args:
    {{ python }} -m tests.supply.versions {{ args }}

# wheel, sdist and SBOM as a release has them, built twice and compared; needs uv
release folder="dist":
    {{ python }} -m tests.supply.release {{ folder }}

# rules of style, and the formatter
lint:
    {{ python }} -m ruff check .
    {{ python }} -m ruff format --check .

# strict types
types:
    {{ python }} -m mypy

# all tests, or those named
test *args:
    {{ python }} -m pytest -n auto --dist loadfile {{ args }}

# format and mend what can be mended
fix:
    {{ python }} -m ruff check --fix .
    {{ python }} -m ruff format .

# schemas from types, and the table of what reads each field
schemas:
    {{ python }} schemas/make.py

# documents that are written by scripts; the catalogues go into docs/generated, which is not in git
docs:
    {{ python }} docs/make.py
    {{ python }} docs/drawing.py
    {{ python }} docs/screens.py
    {{ python }} docs/executed.py
    {{ python }} -m tests.inventory.paper

# the documentation as a site that needs no network; `ckaudit docs` opens it
site:
    {{ python }} docs/build_site.py

# the gallery of illnesses, from recordings of `ckaudit lab record`
gallery cache:
    {{ python }} docs/gallery.py {{ cache }}

# which recordings of the lab show which rule and cause; `ckaudit lab record` makes them
shown cache:
    {{ python }} docs/shown.py {{ cache }}

# synthetic checkpoints
fixtures:
    {{ python }} fixtures/make.py

# train the recorded runs again
runs *names:
    {{ python }} fixtures/runs/make_runs.py {{ names }}

# train the mixture of experts again
experts:
    {{ python }} fixtures/runs/make_experts.py

# golden files of the renderers
golden:
    CKAUDIT_GOLDEN=1 {{ python }} -m pytest tests/reports tests/explain

# the benchmark tables
benchmark:
    {{ python }} benchmarks/validate.py --write
    {{ python }} benchmarks/triage.py --write
    {{ python }} benchmarks/report.py --write
    {{ python }} benchmarks/opening.py --write
    {{ python }} benchmarks/metrics.py --write
    {{ python }} benchmarks/growth.py --write
    {{ python }} benchmarks/size.py --real --write
    {{ python }} benchmarks/recorder.py --qwen --write
    {{ python }} benchmarks/other_recorders.py --write
