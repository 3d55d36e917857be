"""Each `python -m benchmarks.NAME` prints how much faster and leaner this is than a plain reference."""
