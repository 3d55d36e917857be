import json

from benchmarks.index import Index, name_of, opened, opened_plain, write, write_plain


def test_both_ways_hold_the_same_collection(tmp_path):
    write(tmp_path / "ours", 30_000)
    write_plain(tmp_path / "plain", 30_000)
    ours, plain = opened(tmp_path / "ours"), opened_plain(tmp_path / "plain")
    assert ours.names == plain.names
    assert ours.labels == plain.labels
    assert ours.tar_of == plain.tar_of
    assert ours.names[14_001] == name_of(14_001) == "n00000001/n00000001_00001.JPEG"


def test_figures_are_written(tmp_path, capsys):
    Index(entries=40_000, share=2, json=tmp_path / "index.json").run()
    assert "40,000 pictures" in capsys.readouterr().out
    found = json.loads((tmp_path / "index.json").read_text())
    assert found["worker"] < found["reference_worker"]
