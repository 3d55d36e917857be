import torch

from benchmarks.gpu import Gpu


def test_without_a_device_it_says_so(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    Gpu().run()
    assert capsys.readouterr().out == "gpu: skipped, there is no CUDA device here\n"
