from dino_model.published import OFFICIAL
from training.evaluation.paper import ROW_OF, of_model


def test_paper_values_agree_with_the_catalogue():
    for name, entry in OFFICIAL.items():
        if name in ROW_OF:
            knn, linear = of_model(name, "2", "k-NN top-1", "linear top-1")
            values = {row["measure"]: row["value"] for row in (knn, linear)}
            assert values == {"k-NN top-1": entry.scores.knn, "linear top-1": entry.scores.linear}
    assert of_model("embedded", "2", "k-NN top-1") == []
