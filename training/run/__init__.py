"""The folder of a run: checkpoints and log, written, read, diagnosed and plotted."""
