from hypothesis import given
from hypothesis import strategies as st

from app.cache import BoundedCache


def test_value_heavier_than_the_cache_is_kept_alone():
    cache: BoundedCache[str, int] = BoundedCache(10)
    cache.put("small", 1, weight=4)
    cache.put("giant", 2, weight=100)
    assert (cache.get("small"), cache.get("giant")) == (None, 2)
    cache.put("small", 1, weight=4)
    assert (cache.get("small"), cache.get("giant")) == (1, None)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), max_size=60))
def test_weights_never_exceed_the_capacity(entries):
    cache: BoundedCache[int, int] = BoundedCache(8)
    newest: dict[int, int] = {}
    for key, weight in entries:
        cache.put(key, weight, weight=weight)
        newest.pop(key, None)
        newest[key] = weight
        kept = {key: weight for key, weight in newest.items() if cache._entries.get(key)}
        assert sum(kept.values()) <= 8
        assert list(kept) == list(newest)[-len(kept) :]  # the newest ones, without a gap
