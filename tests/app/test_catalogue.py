import pytest

from app.catalogue import catalogue


def test_model_asked_for_comes_first_and_once():
    assert next(iter(catalogue("random:embedded"))) == "random:embedded"
    assert list(catalogue("random:vit_tiny/16"))[:2] == ["random:vit_tiny/16", "embedded"]
    assert len(set(catalogue())) == len(catalogue())


def test_models_without_attention_are_not_offered():
    assert "dino_vits16" in catalogue()
    assert "dino_resnet50" not in catalogue()


def test_folder_offers_checkpoints_and_runs_by_name_only(tmp_path):
    (tmp_path / "mine.safetensors").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint.pt").touch()
    (tmp_path / "empty").mkdir()
    models = catalogue("embedded", tmp_path)
    assert {"mine.safetensors", "run"} <= set(models)
    assert not {"notes.txt", "empty"} & set(models)
    assert models["run"].source == str(tmp_path / "run")
    assert not any(str(tmp_path) in name + choice.label for name, choice in models.items())


def test_runs_offer_every_step_that_they_kept(tmp_path):
    for file in ("log.jsonl", "checkpoint.pt", "step-00000500.pt", "step-00001000.pt", "step-of-mine.pt"):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / file).touch()
    models = catalogue("embedded", tmp_path)
    assert [name for name in models if name.startswith("run")] == ["run", "run@500", "run@1000"]
    assert models["run@1000"].label == "run · step 1,000"
    assert models["run@1000"].source == str(tmp_path / "run" / "step-00001000.pt")


def test_path_of_the_first_model_stays_on_the_server(tmp_path):
    (tmp_path / "mine.pth").touch()
    name, choice = next(iter(catalogue(str(tmp_path / "mine.pth")).items()))
    assert (name, choice.source) == ("mine.pth", str(tmp_path / "mine.pth"))


def test_weights_on_this_machine_are_not_announced_as_downloads(tmp_path, monkeypatch):
    monkeypatch.setenv("DINO_CACHE", str(tmp_path))
    assert "downloads when chosen" in catalogue()["dino_vits16"].label
    (tmp_path / "dino_deitsmall16_pretrain.pth").touch()
    assert "downloads" not in catalogue()["dino_vits16"].label
    assert "downloads when chosen" in catalogue()["dino_vits8"].label


def test_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        catalogue("embedded", tmp_path / "nowhere")
