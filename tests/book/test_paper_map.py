"""The map of the paper leads somewhere: to commands that parse, lessons, tabs and studies that exist."""

import re

import pytest

from book import commands, paper_map
from book.__main__ import main
from book.paper_map import ROOT, Item, MapError
from dino_model.weights import OFFICIAL
from training.studies.grids import STUDIES

CHART = paper_map.read()
FIGURES = [
    "att",
    "model",
    "multihead",
    "vssup",
    "patch-size",
    "mom",
    "collapse",
    "pointing",
    "proj",
    "all",
    "tsne",
]
TABLES = ["archs", "sota", "retrieval", "copy", "dense", "transfers", "components", "compute", "bs", "knn"]
TABLES += ["finetune", "semisup", "vit_cnn", "byol", "swav"]
LABELS = [f"fig:{name}" for name in FIGURES] + [f"tab:{name}" for name in TABLES]
"""In the order of the paper, which numbers them in this order."""
LINES = sorted({line for item in CHART.items for line in item.commands})


def test_every_figure_and_table_of_the_paper_stands_in_the_map_under_its_number():
    numbers = [f"Figure {n}" for n in range(1, 12)] + [f"Table {n}" for n in range(1, 16)]
    assert [(item.number, item.label) for item in CHART.items] == list(zip(numbers, LABELS, strict=True))


@pytest.mark.parametrize("line", LINES)
def test_every_command_in_the_map_parses(line: str):
    asked = commands.parse(line)
    if line.startswith("python -m training study"):
        assert asked.name in STUDIES
    for model in re.findall(r"--model (\S+)", line):
        assert model in OFFICIAL or model.startswith("random:")


def test_a_command_that_does_not_parse_is_refused():
    for line in (
        "python -m segmentation voc --root VOCdevkit --no-such-option",
        "python -m training evaluate knn",
        "python -m training evaluate nothing --data x",
        "python -m training pretrain --recipe nobodys --data x --output y",
        "segmentation voc",
    ):
        with pytest.raises(commands.CommandError):
            commands.parse(line)


@pytest.mark.parametrize("item", CHART.items, ids=lambda item: item.label)
def test_every_lesson_tab_and_study_in_the_map_exists(item: Item):
    for name in item.notebooks:
        assert (ROOT / "notebooks" / f"{name}.py").is_file()
    for name in item.tabs:
        assert (ROOT / "app" / "static" / "tabs" / name / f"{name}.js").is_file()
    assert item.study is None or item.study in STUDIES


def test_every_study_with_a_page_has_a_day_in_the_map():
    measured = {page.stem for page in (ROOT / "docs" / "studies").glob("*.md")}
    assert measured == CHART.studies.keys(), (
        "[studies] in docs/paper-map.toml: the day each page was measured"
    )


def test_the_page_is_the_one_that_the_map_gives():
    assert paper_map.PAGE.read_text(encoding="utf-8") == paper_map.page(CHART), "run `python -m book map`"


def test_rows_that_need_imagenet_or_gpus_say_so():
    rows = [line for line in paper_map.page(CHART).splitlines() if line.startswith("| **")]
    for item, row in zip(CHART.items, rows, strict=True):
        assert ("needs ImageNet" in row) == item.imagenet
        assert ("GPUs**" in row) == item.gpu
        if "imagenet" in " ".join(item.commands) and item.label != "fig:model":
            assert item.imagenet, f"{item.number} has a command on ImageNet"


def test_every_file_that_the_page_links_to_exists():
    links = re.findall(r"\]\(([^)#]+)", paper_map.page(CHART))
    assert links
    gone = [link for link in links if "://" not in link and not (paper_map.PAGE.parent / link).exists()]
    assert not gone


def test_a_figure_is_looked_up_where_it_stands(tmp_path):
    (tmp_path / "a.md").write_text(
        "| | one | two |\n|---|---|---|\n| ours, small | 1 | 2 |\n\n| b | c |\n|-|-|\n| ours | 3 |\n"
    )
    assert paper_map.figure("a.md", "ours", "two", tmp_path) == "2"
    assert paper_map.figure("a.md", "ours", "c", tmp_path) == "3"
    assert paper_map.figure("a.md", "ours", 0, tmp_path) == "ours, small"
    with pytest.raises(MapError, match="no row 'ours' with a column 'four'"):
        paper_map.figure("a.md", "ours", "four", tmp_path)


def test_a_study_says_what_its_picture_says(tmp_path):
    (tmp_path / "docs" / "studies").mkdir(parents=True)
    assert paper_map.reading("odd", tmp_path) is None
    (tmp_path / "docs" / "studies" / "odd.md").write_text("![Odd: It shows.](odd.png)\n")
    assert paper_map.reading("odd", tmp_path) == "It shows."


def test_an_entry_that_names_nothing_to_do_is_refused():
    with pytest.raises(MapError, match="neither a command nor a lesson"):
        Item("Figure 1", "fig:att", "1", "title", "paper", "here", "open")


def test_the_command_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(paper_map, "PAGE", tmp_path / "paper-map.md")
    main(["map"])
    assert (tmp_path / "paper-map.md").read_text(encoding="utf-8") == paper_map.page(CHART)
    assert "paper-map.md" in capsys.readouterr().out
