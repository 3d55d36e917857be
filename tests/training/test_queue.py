import pytest
import torch
import torch.nn.functional as F

from training.queue import Queue


def rows(*values):
    return F.normalize(torch.tensor([[value, 1.0] for value in values]), dim=-1)


def test_the_newest_overwrite_the_oldest_and_wrap_around():
    queue = Queue(4, 2)
    for values in ((1, 2, 3), (4, 5)):
        queue.put(rows(*values))
    torch.testing.assert_close(queue.vectors, rows(5, 2, 3, 4))


def test_it_is_full_once_no_random_row_is_left():
    queue = Queue(4, 2)
    seen = []
    for _ in range(3):
        seen.append(queue.full())
        queue.put(rows(1, 2))
    assert seen == [False, False, True]


def test_it_starts_with_unit_directions_and_resumes_where_it_stood():
    queue, again = Queue(4, 2), Queue(4, 2)
    assert queue.vectors.norm(dim=-1).tolist() == pytest.approx([1] * 4)
    queue.put(rows(1, 2, 3))
    again.load_state_dict(queue.state_dict())
    for each in (queue, again):
        each.put(rows(4, 5))
    torch.testing.assert_close(again.vectors, queue.vectors, rtol=0, atol=0)
