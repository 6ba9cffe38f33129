"""Results as data frames, HTML and one line."""

import sys
from datetime import UTC, datetime

import pytest

from flyball.app.core import Rate, Record, Tabular, figure_text, flat
from flyball.app.core.tabular import NoPandas, UnknownTable, columns_of

MODEL = "ab" * 32


class Result(Tabular):
    brief_columns = {"more": ("model",)}  # noqa: RUF012 - a test's

    def headline(self) -> str:
        return "a result of <b>"

    def tables(self) -> dict[str, list[Record]]:
        rate = Rate.of(1, 2).model_dump()
        rows = [{"score": rate, "games": 2, "list": [1, 2]}, {"score": None, "games": 3}]
        return {"rows": [flat(row) for row in rows], "more": [{"model": MODEL, "hidden": 1}], "none": []}


def test_nested_figures_become_columns():
    first, second = Result().tables()["rows"]
    assert first == {"score_mean": 0.5, "score_n": 2, "score_lower": first["score_lower"]} | {
        "score_upper": first["score_upper"],
        "games": 2,
    }
    assert columns_of((first, second)) == ["score_mean", "score_n", "score_lower", "score_upper", "games"]
    assert columns_of([second]) == ["score", "games"], "without figures the column stays"
    assert columns_of([{"elo": 1.0, "elo_stderr": 2.0}]) == ["elo", "elo_stderr"], "a figure beside its error stays"
    assert columns_of([{"elo": None, "elo_stderr": None}]) == ["elo", "elo_stderr"], "also while both are unknown"


def test_result_is_one_line_and_html():
    result = Result()
    assert repr(result) == str(result) == "<a result of <b>>"
    page = result._repr_html_()
    assert page.startswith("<p><b>a result of &lt;b&gt;</b></p><p>rows</p><table>")
    assert "<th>model</th></tr></thead><tbody><tr><td>abababab</td></tr>" in page
    assert "<p>none</p>" not in page
    assert "hidden" not in page


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "True"),
        (12345, "12,345"),
        (999.5, "999.5"),
        (1000.0, "1,000"),
        (0.123456, "0.1235"),
        (MODEL, "abababab"),
        (f"{MODEL}+64", "abababab+64"),
        ("heuristic", "heuristic"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02 00:00:00+00:00"),
    ],
)
def test_cells_are_short(value: object, text: str):
    assert figure_text(value) == text


def test_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(NoPandas) as refused:
        Result().to_frame()
    assert refused.value.hint == "Install it with: pip install 'flyball[pandas]'"
    with pytest.raises(UnknownTable) as unknown:
        Result().to_frame("row")
    assert unknown.value.hint == "Did you mean rows?"


def test_frame_has_the_rows_of_a_table():
    pytest.importorskip("pandas", reason="pandas is an extra: pip install 'flyball[pandas]'")
    frame = Result().to_frame()
    assert list(frame.columns) == ["score_mean", "score_n", "score_lower", "score_upper", "games"]
    assert frame["games"].tolist() == [2, 3]
    assert frame["score_mean"].isna().tolist() == [False, True]
    assert Result().to_frame("more")["model"].tolist() == [MODEL]
