"""Every numbered case of docs/time.md has a test that carries its number."""

from tests.tidy.time_cases import CASES, PAGE, page_with_table, shown_by_case


def test_every_case_has_a_test() -> None:
    assert sorted(shown_by_case()) == list(CASES)


def test_the_page_lists_the_tests() -> None:
    """If not: `python -m tests.tidy.time_cases`."""
    assert PAGE.read_text(encoding="utf-8") == page_with_table()
