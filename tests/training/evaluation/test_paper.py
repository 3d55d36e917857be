from dino_model.models.catalogue import OFFICIAL
from training.evaluation.paper import ROW_OF, of_model


def test_paper_values_agree_with_the_catalogue():
    for name in ROW_OF.keys() & OFFICIAL.keys():
        scores = OFFICIAL[name].scores
        for measure, value in (("k-NN top-1", scores.knn), ("linear top-1", scores.linear)):
            assert [row["value"] for row in of_model(name, "2", measure)] == [value]
    assert of_model("embedded", "2", "k-NN top-1") == []
