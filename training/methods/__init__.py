"""One file per method: the class is the algorithm of its paper."""
