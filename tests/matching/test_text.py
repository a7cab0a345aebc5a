from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evflow.errors import SubscriptionError
from evflow.matching import Circle, Constraint, Filter, GlobeCircle, Op, Subscription
from evflow.matching.text import DEEPEST, MOST_FILTERS, parse_filter, parse_subscription
from evflow.matching.tokens import LONGEST
from tests.examples import tried
from tests.fuzz import subscriptions
from tests.matching import phrases


def constraints(text: str) -> list[tuple[str, Op, float | str | None]]:
    return [(c.name, c.op, c.value) for c in parse_filter(text).constraints]


def refused(text: str) -> SubscriptionError:
    with pytest.raises(SubscriptionError) as caught:
        parse_subscription(text)
    return caught.value


def test_text_of_the_first_example() -> None:
    assert parse_subscription(
        "area == 'area1' and temp > 30 or area == 'area2' and wind > 20"
    ) == Subscription(
        [
            Filter([Constraint("area", Op.EQ, "area1"), Constraint("temp", Op.GT, 30)]),
            Filter([Constraint("area", Op.EQ, "area2"), Constraint("wind", Op.GT, 20)]),
        ]
    )


@pytest.mark.parametrize(
    ("text", "op", "value"),
    [
        ("a == 1", Op.EQ, 1),
        ("a=1", Op.EQ, 1),
        ("a != 1", Op.NE, 1),
        ("a <> 1", Op.NE, 1),
        ("a ≠ 1", Op.NE, 1),
        ("a < -1", Op.LT, -1),
        ("a<=- 1", Op.LE, -1),
        ("a ≤ +1.5", Op.LE, 1.5),
        ("a > 1e3", Op.GT, 1000),
        ("a >= .5", Op.GE, 0.5),
        ("a ≥ 2.E-1", Op.GE, 0.2),
        ("a == inf", Op.EQ, math.inf),
        ("a == -Inf", Op.EQ, -math.inf),
        ("a == True", Op.EQ, 1),
        ("a == false", Op.EQ, 0),
        ("a == 9007199254740992", Op.EQ, 2**53),
        ("a == 9007199254740993.0", Op.EQ, 2**53),
        (f"a == {'0' * 9000}7", Op.EQ, 7),
        ("30 < a", Op.GT, 30),
        ("30 >= a", Op.LE, 30),
        ("'x' = a", Op.EQ, "x"),
        ("1 != a", Op.NE, 1),
        ("a startswith 'x'", Op.PREFIX, "x"),
        ("a ENDSWITH ''", Op.SUFFIX, ""),
        ('a contains "it\'s"', Op.CONTAINS, "it's"),
        ("exists a", Op.EXISTS, None),
        ("a matches '^x+$'", Op.MATCHES, "^x+$"),
        (r"a not MATCHES '\\d'", Op.NOT_MATCHES, r"\d"),
        ("not a matches ''", Op.NOT_MATCHES, ""),
        ("a == b", Op.EQ_OTHER, "b"),
        ("a <> `in`", Op.NE_OTHER, "in"),
        ("a < b.c", Op.LT_OTHER, "b.c"),
        ("a ≤ a", Op.LE_OTHER, "a"),
        ("not a <= b", Op.GT_OTHER, "b"),
        ("not a < b", Op.GE_OTHER, "b"),
        ("exists(a)", Op.EXISTS, None),
        ("a = nocase 'X'", Op.EQ_NOCASE, "X"),
        ("a ≠NOCASE'X'", Op.NE_NOCASE, "X"),
        ("a in nocase ('X')", Op.EQ_NOCASE, "X"),
        ("a startswith nocase 'ß'", Op.PREFIX_NOCASE, "ß"),
        ("a endswith nocase ''", Op.SUFFIX_NOCASE, ""),
        ("a CONTAINS NoCase 'x'", Op.CONTAINS_NOCASE, "x"),
        ("a not startswith nocase 'x'", Op.NOT_PREFIX_NOCASE, "x"),
        ("not a endswith nocase 'x'", Op.NOT_SUFFIX_NOCASE, "x"),
        ("not a contains nocase 'x'", Op.NOT_CONTAINS_NOCASE, "x"),
        ("(((a < 'x')))", Op.LT, "x"),
    ],
)
def test_constraint_is_read(text: str, op: Op, value: float | str | None) -> None:
    assert constraints(text) == [("a", op, value)]


def test_nan_is_read() -> None:
    (constraint,) = parse_filter("a != nan").constraints
    assert isinstance(constraint.value, float) and math.isnan(constraint.value)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"'a\n\t\r\0\\\'\"\`'", "a\n\t\r\0\\'\"`"),
        (r'"\x41\u00e9\U0001d7d8"', "Aé𝟘"),
        ("'raw \n\x1b√'", "raw \n\x1b√"),
        ("''", ""),
    ],
)
def test_escapes_mean_characters(written: str, meant: str) -> None:
    assert constraints(f"a == {written}") == [("a", Op.EQ, meant)]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a.b.c", "a.b.c"),
        ("_x", "_x"),
        ("été", "été"),
        ("x.1", "x.1"),
        ("`wind speed`", "wind speed"),
        ("`in`", "in"),
        (r"`\`\u0041`", "`A"),
    ],
)
def test_names_are_read(written: str, meant: str) -> None:
    assert constraints(f"{written} < 1") == [(meant, Op.LT, 1)]


def test_area_without_a_unit_is_on_the_plane() -> None:
    assert parse_filter("within(3, -4.5, 5)") == Filter(area=Circle(3, -4.5, 5))


@pytest.mark.parametrize(
    ("radius", "metres"), [("50 km", 50_000), ("50km", 50_000), ("7 m", 7), ("2 mi", 3218.688)]
)
def test_area_with_a_unit_is_on_the_globe(radius: str, metres: float) -> None:
    assert parse_filter(f"within(40.64, -73.78, {radius})").area == GlobeCircle(40.64, -73.78, metres)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("(a = 1 or b = 2) and c = 3", "a == 1 and c == 3 or b == 2 and c == 3"),
        ("a = 1 && (b = 2 || (c = 3 and d = 4))", "a == 1 and b == 2 or a == 1 and c == 3 and d == 4"),
        ("a = 1 and b = 2 or c = 3", "a == 1 and b == 2 or c == 3"),
        ("a in (1, 'x', -2) and b = 2", "a == 1 and b == 2 or a == 'x' and b == 2 or a == -2 and b == 2"),
        ("10 <= a < 20", "a >= 10 and a < 20"),
        (
            "(within(1, 2, 3) or within(4, 5, 6)) and a = 1",
            "a == 1 and within(1, 2, 3) or a == 1 and within(4, 5, 6)",
        ),
        ("true", "true"),
        ("false", "false"),
        ("a = 1 and true", "a == 1"),
        ("a = 1 and false or b = 2", "b == 2"),
        ("true == a", "a == 1"),
        ("10 < a <= b", "a > 10 and a <= b"),
        ("a between 1 and 5 and b = 2", "a >= 1 and a <= 5 and b == 2"),
        ("a BETWEEN 'x' AND 'y'", "a >= 'x' and a <= 'y'"),
        ("a not between 1 and 5", "a < 1 or a > 5"),
        ("not a between 1 and 5", "a < 1 or a > 5"),
        ("a not in (1, 2)", "a != 1 and a != 2"),
        ("not 10 <= a < 20", "a < 10 or a >= 20"),
        ("not a == 1 and b = 2", "a != 1 and b == 2"),
        ("not (a == 1 and b = 2)", "a != 1 or b != 2"),
        ("!(a = 1 or b > 2) and c = 3", "a != 1 and b <= 2 and c == 3"),
        ("not (a = 1 and (b = 2 or not c < 3))", "a != 1 or b != 2 and c < 3"),
        ("not not a = 1", "a == 1"),
        ("not (a = 1 and true)", "a != 1"),
        ("not (a = 1 or true)", "false"),
        ("not false", "true"),
        ("not exists a", "not exists a"),
        ("not exists(a)", "not exists a"),
        ("not not exists a", "exists a"),
        ("a not contains 'x' and not a startswith 'y'", "a not contains 'x' and a not startswith 'y'"),
        ("not a not endswith 'x'", "a endswith 'x'"),
        ("between between 1 and 2", "between >= 1 and between <= 2"),
        ("matches matches 'a' and matches > 1", "matches matches 'a' and matches > 1"),
        ("a not in nocase ('x', 'Y')", "a != nocase 'x' and a != nocase 'Y'"),
        ("nocase == nocase and nocase = nocase 'x'", "nocase == nocase and nocase == nocase 'x'"),
        ("'a' < nocase == nocase", "nocase > 'a' and nocase == nocase"),
        ("'a' < a == nocase 'b'", "a > 'a' and a == nocase 'b'"),
    ],
)
def test_text_is_multiplied_out(text: str, meant: str) -> None:
    assert str(parse_subscription(text)) == meant


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("", "the text is empty", 1, 1),
        ("  \n", "the text is empty", 1, 1),
        ("temp", "expected an operator such as == but found the end; exists temp asks", 1, 5),
        ("temp like 3", "expected an operator (== != <", 1, 6),
        ("temp > ", "expected a value or an attribute after > but found the end", 1, 7),
        ("temp > wind > rain", "expected 'and', 'or' or the end but found >", 1, 13),
        ("temp contains wind", "expected a value after contains but found wind", 1, 15),
        ("temp matches 3", "temp matches: expected a string but found 3.0", 1, 14),
        ("temp matches '(?=a)'", "'(?=a)' is not a regular expression of RE2: invalid perl operator", 1, 14),
        ("temp == nocase 3", "temp == nocase: expected a string but found 3.0", 1, 16),
        ("temp in nocase ('x', -3)", "temp == nocase: expected a string but found -3.0", 1, 22),
        ("temp < nocase 'x'", "nocase goes with ==, !=, in, startswith, endswith and contains, not w", 1, 8),
        ("temp between nocase 'x' and 'y'", "nocase goes with ==, !=, in, startswith", 1, 14),
        ("temp matches nocase 'x'", "not with matches; write (?i) in the expression", 1, 14),
        ("temp > ``", "the name of an attribute is empty", 1, 8),
        ("temp > 3 and", "a value, exists, within, inside, not or ( but found the end", 1, 13),
        ("temp > 3\nand wind <\n\n'", "the string that begins here has no end", 4, 1),
        ("temp > 3 wind < 4", "expected 'and', 'or' or the end but found wind", 1, 10),
        ("(temp > 3", "expected 'and', 'or' or ) but found the end", 1, 10),
        ("temp > 3)", "expected 'and', 'or' or the end but found )", 1, 9),
        ("temp not > 3", "expected startswith, endswith, contains, matches, in or between after not", 1, 10),
        ("temp > not 3", "expected a value or an attribute after > but found not", 1, 8),
        ("not", "expected an attribute, a value, exists, within, inside, not or ( but found the end", 1, 4),
        ("a = 1 and not (b = 1 or within(1, 2, 3))", "within has no opposite", 1, 25),
        ("temp not in (3, 'x')", "not in takes numbers or strings, not both", 1, 17),
        ("not (temp in ('x', 3))", "not in takes numbers or strings, not both", 1, 20),
        ("temp between 3 or 4", "expected and, as in between 1 and 5", 1, 16),
        ("temp between 3 and 'x'", "between takes numbers or strings, not both", 1, 20),
        ("temp > 3 & wind > 4", "'&' means nothing here; expected 'and'", 1, 10),
        ("temp > 3 | wind > 4", "expected 'or' or ||", 1, 10),
        ("in == 3", "in, a word of the language; an attribute of this name is written `in`", 1, 1),
        ("exists 'a'", "expected an attribute but found 'a'", 1, 8),
        ("1 == 1", "expected an attribute but found 1", 1, 6),
        ("3", "expected an operator such as < after the value but found the end", 1, 2),
        ("'x' in a", "the attribute stands first: name contains 'x'", 1, 5),
        ("a in ()", "expected a value but found )", 1, 7),
        ("a in (1 2)", "expected a comma or ) but found 2", 1, 9),
        ("a startswith 3", "a startswith: expected a string", 1, 14),
        ("3 < a contains 'x'", "expected 'and', 'or' or the end but found contains", 1, 7),
        ("`` == 3", "the name of an attribute is empty", 1, 1),
        ("`a == 3", "the name that begins here has no end", 1, 1),
        (r"a == 'x\q'", r"'\\q' is not an escape", 1, 8),
        (r"a == 'x\ud800'", r"\ud800 is not a character of Unicode", 1, 8),
        (r"a == '\U00110000'", "is not a character of Unicode", 1, 7),
        ("a == '\ud83d'", "half of a surrogate pair (U+D83D)", 1, 7),
        ("a == 9007199254740993", "9007199254740993 is not exact as float64", 1, 6),
        ("a == -9007199254740993", "not exact as float64", 1, 7),
        (f"a == 1{'0' * 5000}", "too large for float64", 1, 6),
        ("a == 1e400", "the number is too large for float64; write inf", 1, 6),
        ("a == -'x'", "expected a number after - but found 'x'", 1, 7),
        ("a == “x”", "expected straight quotes", 1, 6),
        ("a == 3;", "';' means nothing here", 1, 7),
        ("within(1, 2)", "expected a comma, as in within(x, y, radius)", 1, 12),
        ("within(1, 2, 3 miles)", "expected m, km or mi but found miles", 1, 16),
        ("within(1, 'x', 3)", "expected a number but found 'x'", 1, 11),
        ("a = 1 and within(1, 2, -3)", "radius of a Circle: expected 0 or more", 1, 11),
        ("within(91, 2, 3 km)", "latitude of a GlobeCircle: expected -90 to 90", 1, 1),
        ("within(1, 2, 3) and (a = 1 and within(1, 2, 3))", "a filter has one area", 1, 32),
    ],
)  # fmt: skip
def test_malformed_text_is_refused_with_its_place(text: str, message: str, line: int, column: int) -> None:
    error = refused(text)
    assert message in error.message
    assert (error.line, error.column, error.source) == (line, column, text)


def test_error_shows_the_line_and_a_caret() -> None:
    assert str(refused("temp > 30\nand wind >> 3")).splitlines()[-2:] == [
        "   2 | and wind >> 3",
        "                 ^ line 2, column 11",
    ]


def test_error_shows_nothing_that_steers_a_terminal() -> None:
    assert "\x1b" not in str(refused("a == \x1b[31m")) and "\u202e" not in str(refused("a == \u202e"))
    str(refused("a == \ud800")).encode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(" * (DEEPEST + 1), f"nested deeper than {DEEPEST}"),
        ("(" * 100_000, f"nested deeper than {DEEPEST}"),
        ("a" * (LONGEST + 1), "the text has 262,145 characters; at most 262,144 are allowed"),
        (" or ".join(["a=1"] * (MOST_FILTERS + 1)), "more than 4,096 filters"),
        (" and ".join(["(a=1 or b=1)"] * 13), "more than 4,096 filters"),
        (" and ".join(["(a=1 or b=1)"] * 2_000), "more than 4,096 filters"),
        (f"a in ({','.join('1' * 10_000)})", "more than 4,096 filters"),
        (f"not ({' and '.join(['a=1'] * (MOST_FILTERS + 1))})", "more than 4,096 filters"),
        (f"not ({' or '.join(['(a=1 and b=1)'] * 13)})", "more than 4,096 filters"),
        (f"({' or '.join(['b=1'] * 300)}) and {' and '.join(['a=1'] * 300)}", "more than 65,536 constraints"),
        (" or ".join([f"(({' and '.join(['(a=1 or b=1)'] * 12)}) and false)"] * 100), "too much to multiply"),
    ],
    ids=[
        "nested", "deep", "long", "or", "2**13", "2**2000", "in", "not and", "not or",
        "constraints", "thrown away",
    ],
)  # fmt: skip
def test_text_that_grows_without_bounds_is_refused(text: str, message: str) -> None:
    assert message in refused(text).message


def test_text_within_the_bounds_is_read() -> None:
    assert len(parse_subscription(" and ".join(["(a=1 or b=1)"] * 12)).filters) == 4096
    assert len(parse_subscription("(" * DEEPEST + "a=1" + ")" * DEEPEST).filters) == 1
    assert len(parse_filter(" and ".join(["a<1"] * 10_000)).constraints) == 10_000
    assert len(parse_filter("not " * 10_000 + "a<1").constraints) == 1


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(SubscriptionError, match=r"expected the text of a subscription but found 3 \(int\)"):
        parse_subscription(3)  # type: ignore[arg-type]


def test_filter_is_one_filter() -> None:
    for text, count in (("a = 1 or b = 1", 2), ("false", 0)):
        with pytest.raises(SubscriptionError, match=f"expected one filter, but the text means {count}"):
            parse_filter(text)


@settings(max_examples=tried(60))
@given(st.integers(0, 2**32))
def test_text_means_what_it_says(seed: int) -> None:
    random = Random(seed)
    tree = phrases.tree(random)
    found = parse_subscription(phrases.written(random, tree))
    for _ in range(10):
        event, place = phrases.event(random)
        assert phrases.satisfied(found, event, place) == phrases.decided(tree, event, place)


ON_TEXT = [Op.PREFIX, Op.SUFFIX, Op.CONTAINS, Op.NOT_PREFIX, Op.NOT_SUFFIX, Op.NOT_CONTAINS]
names = st.text(min_size=1)
numbers = st.floats() | st.integers(-(2**53), 2**53)
any_constraint = st.one_of(
    st.builds(Constraint, names, st.sampled_from(list(Op)[:6]), numbers | st.text()),
    st.builds(Constraint, names, st.sampled_from(ON_TEXT), st.text()),
    st.builds(Constraint, names, st.sampled_from([Op.EXISTS, Op.ABSENT])),
    st.builds(Constraint, names, st.sampled_from([op for op in Op if op.names_other]), names),
)
f32 = st.floats(-1e30, 1e30)
any_area = (
    st.none()
    | st.builds(Circle, f32, f32, st.floats(0, 1e30))
    | st.builds(GlobeCircle, st.floats(-90, 90), f32, st.floats(0, 1e300))
)
any_subscription = st.builds(
    Subscription, st.lists(st.builds(Filter, st.lists(any_constraint, max_size=4), any_area), max_size=3)
)


@pytest.mark.parametrize("name", ["a", "A.b", "NOT", "In", "true", "a b", "1a", "a.", "`", "\n", "√", "ﬁ"])
def test_written_name_is_read_back(name: str) -> None:
    assert parse_filter(str(Constraint(name, "<", 1))) == Filter([Constraint(name, "<", 1)])


def test_sign_of_zero_is_read_back() -> None:
    (constraint,) = parse_filter(str(Constraint("a", "<", -0.0))).constraints
    assert isinstance(constraint.value, float) and math.copysign(1, constraint.value) == -1


@settings(max_examples=tried(60))
@given(any_subscription)
def test_written_subscription_is_read_back(made: Subscription) -> None:
    assert parse_subscription(str(made)) == made


@settings(max_examples=tried(60))
@given(
    st.text(alphabet="ab1.'\"`\\ <=()!&|,\n-é\0") | st.text(st.characters(codec=None, exclude_categories=()))
)
def test_any_text_is_read_or_refused(text: str) -> None:
    subscriptions.checked_text(text)
