"""`ckaudit docs`: which page is opened, and what is said where there is none."""

import webbrowser

import pytest

from ckaudit.cli import docs
from ckaudit.cli.run import run


@pytest.fixture
def opened(monkeypatch):
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: not addresses.append(address))
    return addresses


@pytest.fixture
def site(tmp_path, monkeypatch):
    folder = tmp_path / "the site"
    (folder / "generated").mkdir(parents=True)
    for name in ("index", "404", "gallery", "rules", "generated/rules", "generated/causes"):
        (folder / f"{name}.html").touch()
    monkeypatch.setattr(docs, "PLACES", (tmp_path / "nowhere", folder))
    return folder


@pytest.mark.parametrize(
    ("words", "file"),
    [
        ([], "index.html"),
        (["gallery"], "gallery.html"),
        (["gallery.md"], "gallery.html"),
        (["causes"], "generated/causes.html"),
        (["rules"], "rules.html"),
    ],
)
def test_a_page_is_opened_and_its_address_printed(site, opened, capfd, words, file):
    assert run(["docs", *words]) == 0
    address = (site / file).as_uri()
    assert opened == [address]
    assert capfd.readouterr().out == f"{address}\n"


def test_nothing_is_opened_where_only_the_address_is_asked_for(site, opened, capfd):
    assert run(["docs", "--print"]) == 0
    assert opened == []
    assert capfd.readouterr().out.startswith("file:///")


def test_without_a_browser_the_address_is_left_to_the_reader(site, monkeypatch, capfd):
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    assert run(["docs"]) == 0
    out, err = capfd.readouterr()
    assert out == f"{(site / 'index.html').as_uri()}\n"
    assert err == "no browser could be started: open the address above in one\n"


@pytest.mark.parametrize("name", ["galery", "../gallery", "\x1b[31mred"])
def test_a_page_that_is_not_there_is_an_error_with_the_names_of_those_that_are(site, opened, capfd, name):
    assert run(["docs", name]) == 2
    out, err = capfd.readouterr()
    assert (out, opened) == ("", [])
    assert err.endswith("hint: it has causes, gallery, rules\n")
    assert "\x1b" not in err


def test_where_no_site_was_built_it_says_how(tmp_path, monkeypatch, opened, capfd):
    monkeypatch.setattr(docs, "PLACES", (tmp_path,))
    assert run(["docs"]) == 2
    assert "hint: python docs/build_site.py builds it; it needs pip install -e '.[docs]'" in capfd.readouterr().err
    monkeypatch.setattr(docs, "BUILD", tmp_path / "build_site.py")
    assert run(["docs"]) == 2
    assert "it comes with a clone of the repository" in capfd.readouterr().err
    assert opened == []
