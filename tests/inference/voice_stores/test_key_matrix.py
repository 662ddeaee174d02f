"""Laws of the rounded keys: no best key is left out, and errors are within their bounds."""

import numpy as np
import pytest

from simple_spk.inference.voice_stores import key_matrix
from simple_spk.inference.voice_stores.key_matrix import best_rows, decoded, encoded


def drawn(count: int, width: int, kind: str, seed: int) -> np.ndarray:
    """Vectors (count, width) that are hard to round."""
    random = np.random.default_rng(seed)
    found = random.normal(size=(count, width)).astype(np.float32)
    if kind == "lengths":
        found[:, -1] = np.linalg.norm(found[:, :-1], axis=1)
        found *= random.uniform(0.1, 10.0, (count, 1)).astype(np.float32)
    elif kind == "one large number":
        found[:, 0] *= 1000.0
    elif kind == "alike":
        found = found[:1] + 1e-3 * found
    elif kind == "any size":
        found *= 10.0 ** random.uniform(-12, 9, (count, 1)).astype(np.float32)
    elif kind == "zeros":
        found[random.random(count) < 0.5] = 0.0
    return found


@pytest.mark.parametrize("width", [1, 2, 9, 193])
@pytest.mark.parametrize(
    "kind", ["normal", "lengths", "one large number", "alike", "any size", "zeros"]
)
def test_no_best_key_is_left_out(kind: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the products in double precision, in blocks of several rows."""
    monkeypatch.setattr(key_matrix, "ROWS_AT_ONCE", 97)
    keys, queries = drawn(500, width, kind, 0), drawn(6, width, kind, 1)
    keys[[3, 400]] = np.nan
    products = queries.astype(np.float64) @ keys.astype(np.float64).T
    for count in (1, 10, 498):
        for product, found in zip(products, best_rows(queries, encoded(keys), count), strict=True):
            least = np.sort(product[np.isfinite(product)])[-count]
            assert {*np.flatnonzero(product >= least)} <= {*found.rows}
            assert not {3, 400} & {*found.rows}
            assert (np.abs(found.scores - product[found.rows]) <= found.errors).all()


def test_few_keys_more_than_asked_for_are_found() -> None:
    keys, queries = drawn(50_000, 193, "lengths", 0), drawn(4, 193, "lengths", 1)
    queries[:, -1] *= -0.3
    for found in best_rows(queries, encoded(keys), 200):
        assert 200 <= len(found.rows) < 500


def test_rounded_keys_are_near() -> None:
    keys = drawn(100, 193, "lengths", 0)
    differences = np.linalg.norm(decoded(encoded(keys), 193) - keys, axis=1)
    assert (differences < 0.01 * np.linalg.norm(keys, axis=1)).all()
    assert np.array_equal(decoded(encoded(keys), 193)[:, -1], keys[:, -1])
