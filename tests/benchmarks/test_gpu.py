from dataclasses import replace

import torch

from benchmarks import data, train_step
from benchmarks.train_step import TrainStep


def test_train_step_on_cuda_without_a_device_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    TrainStep(device="cuda").run()
    assert capsys.readouterr().out == "train_step: skipped, there is no CUDA device\n"


def test_benchmark_of_data_prints_every_stage_per_core(monkeypatch, capsys):
    monkeypatch.setattr(data, "IMAGES", 2)
    monkeypatch.setattr(data, "CROPS", replace(data.CROPS, local_crops=1))
    monkeypatch.setattr(data, "measure", lambda *_, **__: train_step)
    monkeypatch.setattr(data, "report", lambda *_: None)
    data.Data(repeats=1).run()
    printed = capsys.readouterr().out
    for stage in ("worker, decode", "worker, augment device", "cpu, crops, flips and photometry"):
        assert stage in printed
    assert "cores for 3,000 images/s" in printed
