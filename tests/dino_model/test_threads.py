"""Threads that sleep while they wait: said once, before libraries look, and never against the environment."""

import json
import subprocess
import sys


def test_set_passive_omp_reaches_libraries_loaded_later():
    told = (
        "from dino_model.threads import set_passive_omp; set_passive_omp(OPENBLAS_NUM_THREADS='1')\n"
        "import numpy, threadpoolctl\n"
        "found = threadpoolctl.threadpool_info()\n"
        "print([each['num_threads'] for each in found if each['internal_api'] == 'openblas'])"
    )
    shown = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert json.loads(shown.stdout) == [1]
