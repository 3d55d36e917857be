"""Figures that are written into the card of the embedded model."""

FIGURES = {
    "knn": {"results": [{"metrics": {"top1": 61.04, "per_class_top1": 45.06}}]},
    "voc": {"jaccard": 30.55, "lift": 2.449},
    "davis": {"dataset": {"J&F_mean": 0.8123, "J_mean": 0.8555, "F_mean": 0.7691}},
}


def test_with_figures_replaces_four_rows_and_keeps_the_baselines():
    from tools import ship  # imports pyplot

    before = ship.CARD.read_text(encoding="utf-8")
    after = ship.with_figures(before, FIGURES, FIGURES | {"voc": {"jaccard": 9.0, "lift": 0.99}})
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    changed = [new for old, new in pairs if new != old]
    cells = [[cell.strip() for cell in row.split("|")[2:4]] for row in changed]
    assert cells == [
        ["61.0 % (45.1)", "61.0 % (45.1)"],
        ["30.6 %", "9.0 %"],
        ["2.45", "0.99"],
        ["81.2 (85.5, 76.9)", "81.2 (85.5, 76.9)"],
    ]
