"""Expressions that are refused before any device is looked at, where, and with which words."""

from __future__ import annotations

from typing import Final

from tests.support.cel_laws import Refusal

REFUSALS: Final = (
    Refusal("nothing is no expression", "", "1:1", "expected an expression, found end of expression"),
    Refusal("white space is no expression", "  \n ", "2:2", "expected an expression, found end of expression"),
    Refusal("brackets must close", "(true", "1:6", "expected ')', found end of expression"),
    Refusal("a list must close", "[1, 2", "1:6", "expected ']', found end of expression"),
    Refusal("a map must close", "{'a': 1", "1:8", "expected '}', found end of expression"),
    Refusal("an entry needs a value", "{'a'} == {}", "1:5", "expected ':', found '}'"),
    Refusal("an operand must follow", "true &&", "1:8", "expected an expression, found end of expression"),
    Refusal("two expressions are none", "true true", "1:6", "expected end of expression, found 'true'"),
    Refusal("a text must close", "'abc", "1:1", "this string is not closed"),
    Refusal("a text in single quotes ends with its line", "'a\nb' == ''", "1:1", "this string is not closed"),
    Refusal("an escape must be known", "'\\q' == ''", "1:1", "unknown escape \\q in a literal"),
    Refusal("a byte escape must be complete", "'\\x4' == ''", "1:1", "unknown escape \\x in a literal"),
    Refusal("half a character is none", "'\\ud800' == ''", "1:1", "an escape names no Unicode character"),
    Refusal("code points end at 10FFFF", "'\\U00110000' == ''", "1:1", "an escape names no Unicode character"),
    Refusal("bytes have no code points", "b'\\u0041' == b'A'", "1:1", "unknown escape \\u in a literal"),
    Refusal("an unknown sign is no token", "true # false", "1:6", "unexpected character '#'"),
    Refusal("one ampersand is none", "true & false", "1:6", "unexpected character '&'"),
    Refusal("a number must fit", "9223372036854775808 == 0", "1:1", "this number is too large for an int"),
    Refusal("an unsigned number must fit", "18446744073709551616u == 0u", "1:1", "this number is too large for a uint"),
    Refusal("a hexadecimal number needs digits", "0x == 0", "1:2", "expected end of expression, found 'x'"),
    Refusal("a double must fit", "1e999 == 0.0", "1:1", "this number is too large for a double"),
    Refusal("signs do not mix", "!-true", "1:2", "expected an operand, found '-'"),
    Refusal("reserved words are no names", "for == 1", "1:1", "'for' is reserved"),
    Refusal("reserved words are no functions", "if(true)", "1:1", "'if' is reserved"),
    Refusal("in is no name", "in == 1", "1:1", "expected an expression, found 'in'"),
    Refusal(
        "messages cannot be made", "kubernetes.DRADevice{}.driver == ''", "1:21", "a selector cannot construct messages"
    ),
    Refusal("names must be known", "gpu.model == 'x'", "1:1", "undeclared reference to 'gpu'"),
    Refusal("names must be known inside calls too", "size(x) == 1", "1:6", "undeclared reference to 'x'"),
    Refusal("functions must be known", "frobnicate(1) == 1", "1:11", "undeclared reference to 'frobnicate'"),
    Refusal("methods must be known", "'a'.frobnicate()", "1:15", "undeclared reference to 'frobnicate'"),
    Refusal("there is no math library", "math.greatest(1, 2) == 2", "1:1", "undeclared reference to 'math'"),
    Refusal("there is no base64 library", "base64.encode(b'a') == ''", "1:1", "undeclared reference to 'base64'"),
    Refusal("there is no clock", "now() == timestamp(0)", "1:4", "undeclared reference to 'now'"),
    Refusal("a device has no other fields", "device.node == 'n'", "1:7", "undefined field 'node' of device"),
    Refusal("a text has no fields", "'a'.b == 1", "1:4", "type string has no fields"),
    Refusal("a number has no fields", "1.b == 1", "1:2", "type int has no fields"),
    Refusal(
        "a device has no attributes of its own",
        "device.model == 'x'",
        "1:7",
        "undefined field 'model' of device",
    ),
    Refusal("a selector answers a bool", "1", "1:1", "the expression must be a bool, it is int"),
    Refusal(
        "a quantity is no answer",
        "device.capacity['gpu.example.com'].memory",
        "1:35",
        "the expression must be a bool, it is kubernetes.Quantity",
    ),
    Refusal(
        "a map is no answer",
        "device.attributes",
        "1:7",
        "the expression must be a bool, it is map(string, map(string, dyn))",
    ),
    Refusal(
        "an optional of a bool is no answer",
        "optional.of(true)",
        "1:12",
        "the expression must be a bool, it is optional_type(bool)",
    ),
    Refusal("bool operators take bools", "1 && true", "1:1", "expected type bool, found int"),
    Refusal("not takes a bool", "!1", "1:1", "no overload of '!' takes (int)"),
    Refusal("a condition is a bool", "1 ? true : false", "1:3", "no overload of '?:' takes (int, bool, bool)"),
    Refusal(
        "branches of a conditional agree", "true ? 1 : 'a' == 'a'", "1:6", "no overload of '?:' takes (bool, int, bool)"
    ),
    Refusal("numbers of two types do not add", "1 + 1.0 == 2.0", "1:3", "no overload of '+' takes (int, double)"),
    Refusal("a text and a number do not add", "'a' + 1 == 'a1'", "1:5", "no overload of '+' takes (string, int)"),
    Refusal("doubles have no remainder", "1.5 % 1.0 == 0.5", "1:5", "no overload of '%' takes (double, double)"),
    Refusal("texts have no negative", "-'a' == 'a'", "1:1", "no overload of '-' takes (string)"),
    Refusal("a text and a number do not compare", "'a' < 1", "1:5", "no overload of '<' takes (string, int)"),
    Refusal("lists have no order", "[1] < [2]", "1:5", "no overload of '<' takes (list(int), list(int))"),
    Refusal("different types are not equal", "1 == 'a'", "1:3", "no overload of '==' takes (int, string)"),
    Refusal(
        "a quantity is no number",
        "device.capacity['gpu.example.com'].memory == 80",
        "1:43",
        "no overload of '==' takes (kubernetes.Quantity, int)",
    ),
    Refusal(
        "a quantity has no order sign",
        "device.capacity['gpu.example.com'].memory > quantity('1')",
        "1:43",
        "no overload of '>' takes (kubernetes.Quantity, kubernetes.Quantity)",
    ),
    Refusal("a driver is no number", "device.driver == 1", "1:15", "no overload of '==' takes (string, int)"),
    Refusal("list elements have a type", "[1].exists(x, x == 'a')", "1:17", "no overload of '==' takes (int, string)"),
    Refusal("map values have a type", "{'a': 1}['a'] == 'x'", "1:15", "no overload of '==' takes (int, string)"),
    Refusal(
        "element types of lists must agree",
        "[1] == ['a']",
        "1:5",
        "no overload of '==' takes (list(int), list(string))",
    ),
    Refusal("in needs elements of its type", "1 in ['a']", "1:3", "no overload of 'in' takes (int, list(string))"),
    Refusal("a list has no text keys", "[1]['a'] == 1", "1:4", "no overload of '[]' takes (list(int), string)"),
    Refusal(
        "a map has keys of one type", "{'a': 1}[1] == 1", "1:9", "no overload of '[]' takes (map(string, int), int)"
    ),
    Refusal(
        "list literals do not mix",
        "[1, 'a'] == []",
        "1:5",
        "expected type int, found string: a literal cannot mix types",
    ),
    Refusal(
        "map literals do not mix keys",
        "{'a': 1, 1: 2} == {}",
        "1:10",
        "expected type string, found int: a literal cannot mix types",
    ),
    Refusal(
        "map literals do not mix values",
        "{'a': 1, 'b': 'x'} == {}",
        "1:15",
        "expected type int, found string: a literal cannot mix types",
    ),
    Refusal("has takes a selection", "has(device)", "1:5", "has() needs a field selection like has(a.b)"),
    Refusal(
        "has takes no index",
        "has(device.attributes['gpu.example.com']['model'])",
        "1:41",
        "has() needs a field selection like has(a.b)",
    ),
    Refusal("has takes one argument", "has(device.driver, device.driver)", "1:4", "undeclared reference to 'has'"),
    Refusal("a variable is a simple name", "[1].all(a.b, true)", "1:10", "a variable needs a simple name"),
    Refusal("two variables differ", "[1].all(a, a, true)", "1:12", "both variables are called a"),
    Refusal("a loop's test is a bool", "[1].all(x, x)", "1:12", "expected type bool, found int"),
    Refusal(
        "a loop needs a list or map",
        "1.all(x, true)",
        "1:1",
        "type int cannot be gone through, it is neither list nor map",
    ),
    Refusal(
        "a text cannot be gone through",
        "'abc'.all(c, true)",
        "1:1",
        "type string cannot be gone through, it is neither list nor map",
    ),
    Refusal("a loop variable is unknown outside", "[1].all(x, true) && x == 1", "1:21", "undeclared reference to 'x'"),
    Refusal(
        "the running value has a name nobody writes",
        "[1].all(__result__, true)",
        "1:9",
        "a variable cannot be called __result__",
    ),
    Refusal(
        "transformMapEntry makes maps",
        "[1].transformMapEntry(i, v, v) == {}",
        "1:22",
        "no overload of 'cel.mapInsert' takes (map(dyn, dyn), int)",
    ),
    Refusal("sortBy sorts lists", "{'a': 1}.sortBy(k, k) == []", "1:1", "sortBy() needs a list"),
    Refusal(
        "keys of sortBy have an order",
        "[1].sortBy(x, [x]) == []",
        "1:11",
        "no overload of 'sortByAssociatedKeys' takes list(int).(list(list(int)))",
    ),
    Refusal("bind needs a name", "cel.bind(1, 2, true)", "1:10", "a variable needs a simple name"),
    Refusal(
        "orValue keeps the type",
        "optional.of(1).orValue('a') == 'a'",
        "1:23",
        "no overload of 'orValue' takes optional_type(int).(string)",
    ),
    Refusal(
        "optMap needs an optional", "[1].optMap(x, x) == []", "1:11", "no overload of 'hasValue' takes list(int).()"
    ),
    Refusal("an optional element is an optional", "[?1] == [1]", "1:3", "expected type optional_type(int), found int"),
    Refusal(
        "an optional entry is an optional", "{?'a': 1} == {}", "1:8", "expected type optional_type(int), found int"
    ),
    Refusal(
        "methods are not functions",
        "startsWith('a', 'b')",
        "1:11",
        "no overload of 'startsWith' takes (string, string)",
    ),
    Refusal(
        "functions are not methods",
        "'1Gi'.quantity() == quantity('1Gi')",
        "1:15",
        "no overload of 'quantity' takes string.()",
    ),
    Refusal("too few arguments", "'a'.contains()", "1:13", "no overload of 'contains' takes string.()"),
    Refusal(
        "too many arguments",
        "'a'.startsWith('a', 'b')",
        "1:15",
        "no overload of 'startsWith' takes string.(string, string)",
    ),
    Refusal(
        "sign is a function, not a method",
        "quantity('1').sign() == 1",
        "1:19",
        "no overload of 'sign' takes kubernetes.Quantity.()",
    ),
    Refusal(
        "a constant pattern must be one", "device.driver.matches('(')", "1:23", "bad regular expression: missing ): ("
    ),
    Refusal(
        "a pattern has no look-ahead",
        "device.driver.matches('a(?=b)')",
        "1:23",
        "bad regular expression: invalid perl operator: (?=",
    ),
    Refusal(
        "a pattern has no back reference",
        "device.driver.matches(r'(a)\\1')",
        "1:23",
        "bad regular expression: invalid escape sequence: \\1",
    ),
    Refusal("a constant duration must be one", "duration('1 hour') > duration('0')", "1:9", "'1 hour' is no duration"),
    Refusal(
        "a constant timestamp must be one",
        "timestamp('yesterday') > timestamp(0)",
        "1:10",
        "'yesterday' is no timestamp",
    ),
    Refusal("a constant number must be one", "int('x') == 1", "1:4", "'x' is no int"),
    Refusal("constant bytes must be text", "string(b'\\xff') == ''", "1:7", "these bytes are no UTF-8"),
    Refusal("a constant format must be known", "'%q'.format(['a']) == ''", "1:12", "format: unknown clause %q"),
    Refusal(
        "a constant format has its values", "'%s %s'.format(['a']) == ''", "1:15", "format: there is no value number 2"
    ),
    Refusal(
        "a constant format uses its values", "'%s'.format(['a', 'b']) == ''", "1:12", "format: 2 values for 1 clauses"
    ),
    Refusal("a constant format takes its types", "'%d'.format(['a']) == ''", "1:14", "format: %d does not take string"),
    Refusal("a date has no type", "type(1) == google.protobuf.Date", "1:12", "undeclared reference to 'google'"),
    Refusal("max needs an order", "[[1]].max() == [1]", "1:10", "no overload of 'max' takes list(list(int)).()"),
    Refusal("sum needs numbers", "['a'].sum() == 'a'", "1:10", "no overload of 'sum' takes list(string).()"),
    Refusal(
        "sets are lists", "sets.contains('a', 'b')", "1:14", "no overload of 'sets.contains' takes (string, string)"
    ),
    Refusal(
        "a range counts to an int", "lists.range('a') == []", "1:12", "no overload of 'lists.range' takes (string)"
    ),
    Refusal(
        "a literal map has one type of value, dyn or not",
        "{'a': 1, 'b': dyn(1)} == {}",
        "1:18",
        "expected type int, found dyn: a literal cannot mix types",
    ),
    Refusal("a name of a type stands alone", "net.IP.x == 1", "1:7", "type type(net.IP) has no fields"),
    Refusal("a number has no size", "1.size() == 1", "1:7", "no overload of 'size' takes int.()"),
    Refusal("names of types must be known", "type(1) == integer", "1:12", "undeclared reference to 'integer'"),
    Refusal(
        "a nested loop variable is gone after its loop",
        "[1].all(x, [2].all(y, true) && y == 2)",
        "1:32",
        "undeclared reference to 'y'",
    ),
    Refusal("map takes one variable", "[1].map(i, v, 1, v) == [1]", "1:9", "undeclared reference to 'i'"),
    Refusal("existsOne needs two variables", "[1].existsOne(x, true)", "1:15", "undeclared reference to 'x'"),
    Refusal("a dot must be followed by a name", "device.'driver' == ''", "1:8", "expected a field name, found string"),
    Refusal("quoted names are fields only", "`device`.driver == ''", "1:1", "expected an expression, found 'device'"),
)
