"""The paper's tables, and the report that holds them beside what was measured."""

import json
from pathlib import Path

import pytest

from dino_model.weights import OFFICIAL
from tests.training.evaluation.pictures import evaluate
from training.evaluation.paper import ROW_OF, of_model, published
from training.evaluation.report import Results, our_table, paper_tables, to_markdown


def test_paper_tables_agree_with_catalogue():
    systems = {one.system for one in published()}
    assert systems >= {
        *(
            "DINO",
            "BYOL",
            "MoCo-v2",
            "SwAV",
            "Supervised",
            "STM",
            "CT",
            "MAST",
            "STC",
            "MultiGrain",
            "InfoMin",
        ),
        *("BarlowT", "OBoW", "DCv2", "UDA", "FixMatch", "MPL"),
    }
    assert len({(one.table, one.title) for one in published()}) == 30
    for name, entry in OFFICIAL.items():
        if name in ROW_OF:
            (knn,) = of_model(name, "2", "k-NN top-1")
            (linear,) = of_model(name, "2", "linear top-1")
            assert (knn.value, linear.value) == (entry.scores.knn, entry.scores.linear)
    assert of_model("embedded", "2") == []


def measured(classes: int) -> Results:
    return Results(
        "knn",
        {"description": "k = 20", "classes": classes, "data": "pictures", "split": "5 tested"},
        [{"model": "dino_vits16", "metrics": {"top1": 74.44, "k": 20}}],
    )


def column(table: list[list[str]], name: str, *row: str) -> str:
    (line,) = [line for line in table[1:] if line[: len(row)] == list(row)]
    return line[table[0].index(name)]


def test_report_compares_same_model_on_as_many_classes():
    for classes, expected in ((1000, "74.4"), (101, "")):
        tables = dict(paper_tables([measured(classes)]))
        table = tables["Table 2, section 4.1: Linear and k-NN classification on ImageNet"]
        assert column(table, "ours: k-NN top-1", "DINO", "ViT-S/16") == expected
        assert column(table, "k-NN top-1", "DINO", "ViT-S/16") == "74.5"
        assert column(table, "ours: k-NN top-1", "DINO", "ViT-B/8") == ""
        assert column(table, "ours: linear top-1", "DINO", "ViT-S/16") == ""


def test_report_compares_same_k_and_official_protocol():
    several = [{"k": 10, "top1": 60.0}, {"k": 20, "top1": 61.0}, {"k": 200, "top1": 62.0}]
    knn = Results("knn", {}, [{"model": "dino_vits16", "metrics": several[0], "each": several}])
    table = dict(paper_tables([knn]))["Table 2, section 4.1: Linear and k-NN classification on ImageNet"]
    assert column(table, "ours: k-NN top-1", "DINO", "ViT-S/16") == "61.0"
    assert [row[1:] for row in our_table(knn)] == [
        ["k", "top1"],
        ["10", "60.0"],
        ["20", "61.0"],
        ["200", "62.0"],
    ]
    for official, expected in ((True, "41.5"), (False, "")):
        one = {"model": "dino_vits16", "metrics": {"medium_map": 41.5}}
        table = dict(paper_tables([Results("retrieval roxford5k", {"official": official}, [one])]))[
            "Table 3, section 4.2.1: Image retrieval, mAP"
        ]
        assert column(table, "ours: ROxford Medium", "DINO", "ViT-S/16", "ImageNet") == expected


def test_report_names_broken_images():
    one = measured(101)
    one.results[0]["broken"] = ["a.png is empty"]  # type: ignore[index]
    assert "dino_vits16: 1 images could not be read, such as a.png is empty" in to_markdown([one])


def test_report_command_writes_markdown(tmp_path: Path):
    result = measured(101)
    file = tmp_path / "knn.json"
    content = {"name": result.name, "protocol": result.protocol, "results": result.results}
    file.write_text(json.dumps(content))
    evaluate("report", file, "--output", tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text()
    assert text == to_markdown([result])
    assert "| dino_vits16 | 20 | 74.4 |" in text
    assert "MultiGrain" in text


def test_report_of_other_file_raises(tmp_path: Path):
    file = tmp_path / "other.json"
    file.write_text('{"name": "voc"}')
    with pytest.raises(ValueError, match=r"other\.json was not written by `training evaluate … --json`"):
        evaluate("report", file)
