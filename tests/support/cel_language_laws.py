"""What the language itself means: literals, operators, the device, macros, optional values."""

from __future__ import annotations

from typing import Final

from tests.support.cel_laws import Law

_G = "device.attributes['gpu.example.com']"
_C = "device.capacity['gpu.example.com']"

LITERALS: Final = (
    Law(
        "numbers are read in decimal and hexadecimal, signed, unsigned and floating",
        true=(
            "0x1F == 31",
            "0xffu == 255u",
            "1e3 == 1000.0",
            ".5 == 0.5",
            "2.5e-1 == 0.25",
            "-9223372036854775808 < 0",
            "18446744073709551615u > 0u",
            "007 == 7",
        ),
    ),
    Law(
        "text has one or three quotes of either kind, and escapes",
        true=(
            "'a' == \"a\"",
            "'''it's''' == \"it's\"",
            '"""a "b" c""" == \'a "b" c\'',
            "'''a\nb''' == 'a\\nb'",
            r"'\x41\101\u0041\U00000041' == 'AAAA'",
            r"'\a\b\f\n\r\t\v\\\'\"\?\`'.size() == 12",
            r"r'\d' == '\\d'",
            r"R'\n' == '\\n'",
        ),
    ),
    Law(
        "bytes are the encoded text, and their escapes are single bytes",
        true=("b'ab' == bytes('ab')", r"b'\xff'.size() == 1", "b'é'.size() == 2", r"br'\x' == b'\\x'", "B'a' == b'a'"),
        false=("b'a' == b'b'",),
    ),
    Law("comments and white space mean nothing", true=("true // false\n && true", "\ttrue\r\n", "1\f== 1")),
    Law(
        "lists and maps may end in a comma",
        true=("[1, 2,] == [1, 2]", "{'a': 1,} == {'a': 1}", "[] == []", "{} == {}", "[,] == []", "{,} == {}"),
    ),
    Law("null equals null only", true=("null == null", "dyn(null) != 1"), false=("dyn(null) == 0",)),
    Law(
        "types are values",
        true=(
            "type(1) == int",
            "type(1u) == uint",
            "type(1.0) == double",
            "type('') == string",
            "type(b'') == bytes",
            "type(true) == bool",
            "type(null) == null_type",
            "type([]) == list",
            "type({}) == map",
            "type(int) == type",
            "type(duration('1s')) == google.protobuf.Duration",
            "type(timestamp(0)) == google.protobuf.Timestamp",
            "type(ip('::1')) == net.IP",
            "type(cidr('::/0')) == net.CIDR",
            "type(optional.none()) == optional_type",
            f"type({_G}.index) == int",
            f"type({_G}.tags) == list",
            f"type({_G}.driverVersion) != string",
        ),
        false=("type(1) == uint", f"type({_G}.healthy) == string"),
    ),
)

ARITHMETIC: Final = (
    Law(
        "whole numbers divide towards zero and leave a remainder with the sign of the dividend",
        true=("7 / 2 == 3", "-7 / 2 == -3", "7 % -2 == 1", "-7 % 2 == -1", "7u / 2u == 3u", "7u % 4u == 3u"),
    ),
    Law(
        "what does not fit into 64 bits fails",
        fails=(
            "9223372036854775807 + 1 > 0",
            "-9223372036854775808 - 1 < 0",
            "9223372036854775807 * 2 > 0",
            "-(-9223372036854775808) > 0",
            "-9223372036854775808 / -1 > 0",
            "18446744073709551615u + 1u > 0u",
            "0u - 1u > 0u",
            "18446744073709551615u * 2u > 0u",
            f"{_G}.index * 9223372036854775807 > 0",
        ),
    ),
    Law(
        "dividing by zero fails for whole numbers and not for others",
        true=("1.0 / 0.0 > 1e300", "-1.0 / 0.0 < -1e300", "0.0 / 0.0 != 0.0 / 0.0"),
        fails=("1 / 0 == 1", "1 % 0 == 1", "1u / 0u == 1u", "1u % 0u == 1u"),
    ),
    Law(
        "floating point is that of the machine",
        true=("0.1 + 0.2 != 0.3", "1.5 * 2.0 == 3.0", "1.0 - 0.5 == 0.5", "-(0.5) == -0.5", "3.0 / 2.0 == 1.5"),
    ),
    Law(
        "plus joins texts, bytes and lists",
        true=(
            "'a' + 'b' == 'ab'",
            "b'a' + b'b' == b'ab'",
            "[1] + [2] == [1, 2]",
            f"{_G}.tags + ['x'] == ['nvlink', 'hbm', 'x']",
        ),
    ),
    Law(
        "times go by nanoseconds",
        true=(
            "timestamp('2026-03-01T00:00:00Z') + duration('1h') == timestamp('2026-03-01T01:00:00Z')",
            "duration('1h') + timestamp('2026-03-01T00:00:00Z') == timestamp('2026-03-01T01:00:00Z')",
            "timestamp('2026-03-01T00:00:00Z') - duration('1ns') < timestamp('2026-03-01T00:00:00Z')",
            "timestamp('2026-03-01T01:00:00Z') - timestamp('2026-03-01T00:00:00Z') == duration('1h')",
            "duration('90m') - duration('1h') == duration('30m')",
            "duration('1h') + duration('30m') == duration('1h30m')",
        ),
        fails=(
            "timestamp('9999-12-31T23:59:59Z') + duration('1s') > timestamp(0)",
            "duration('2562047h') + duration('2562047h') > duration('0')",
        ),
    ),
    Law(
        "operands of different types never add up, even when only the device tells their types",
        fails=(
            f"{_G}.index + 1.0 > 0.0",
            f"{_G}.model + 1 == 1",
            f"{_G}.tags + {_G}.model == []",
            f"-{_G}.model == 1",
            "dyn(1u) + 1 == 2",
        ),
    ),
    Law("a sign before a number is its own", true=("- 1 == -1", "--1 == 1", "1 - -1 == 2", "-1.5 < 0.0")),
)

COMPARISONS: Final = (
    Law(
        "numbers compare across their types",
        true=(
            "dyn(1) == 1.0",
            "dyn(1u) == 1",
            "1 < 1.5",
            "1 < 2u",
            "1 <= 1.0",
            "1 <= 1u",
            "2 > 1.5",
            "2 > 1u",
            "2 >= 1.5",
            "2 >= 1u",
            "1u < 2",
            "1u < 1.5",
            "1u <= 1",
            "1u <= 1.0",
            "2u > 1",
            "2u > 1.5",
            "2u >= 2",
            "2u >= 2.0",
            "1.5 < 2",
            "1.5 < 2u",
            "1.5 <= 2",
            "1.5 <= 2u",
            "1.5 > 1",
            "1.5 > 1u",
            "1.5 >= 1",
            "1.5 >= 1u",
            "-1 < 0u",
            "9223372036854775807 < 9223372036854775808u",
            "9223372036854775807 < 9.3e18",
            f"{_G}.index < 3.5",
        ),
        false=("1 > 1.0", "-1 > 0u", "1u < 1"),
    ),
    Law(
        "what is not a number is equal to nothing, and has no place in the order",
        false=("double('NaN') == double('NaN')", "double('NaN') in [double('NaN')]"),
        fails=("double('NaN') < 1.0", "double('NaN') >= 1.0", "1 > double('NaN')"),
    ),
    Law(
        "each type has its order",
        true=(
            "false < true",
            "false <= false",
            "true > false",
            "true >= true",
            "1 < 2",
            "1 <= 1",
            "2 > 1",
            "2 >= 2",
            "1u < 2u",
            "1u <= 1u",
            "2u > 1u",
            "2u >= 2u",
            "1.0 < 2.0",
            "1.0 <= 1.0",
            "2.0 > 1.0",
            "2.0 >= 2.0",
            "'a' < 'b'",
            "'a' <= 'a'",
            "'b' > 'a'",
            "'b' >= 'B'",
            "b'a' < b'b'",
            "b'a' <= b'a'",
            "b'b' > b'a'",
            "b'b' >= b'b'",
            "duration('1s') < duration('2s')",
            "duration('1s') <= duration('1000ms')",
            "duration('2s') > duration('1s')",
            "duration('2s') >= duration('2s')",
            "timestamp(0) < timestamp(1)",
            "timestamp(0) <= timestamp(0)",
            "timestamp(1) > timestamp(0)",
            "timestamp(1) >= timestamp('1970-01-01T01:00:01+01:00')",
            "'\\uffff' < '\\U00010000'",
        ),
        false=("true < false", "'a' > 'b'", "b'a' >= b'b'"),
    ),
    Law(
        "what has no common order fails where only the device tells the types",
        fails=(
            f"{_G}.model < 1",
            f"{_G}.healthy < 1",
            f"{_G}.driverVersion < '600'",
            f"{_G}.tags < 1",
            f"1 < {_G}.model",
        ),
    ),
    Law(
        "values of different types are unequal, and a missing type is no error",
        true=(
            f"{_G}.model != 1",
            f"{_G}.index != 'x'",
            f"{_G}.healthy != 1",
            f"{_G}.tags != 'nvlink'",
            "dyn(true) != 1",
        ),
        false=(f"{_G}.index == '3'", f"{_G}.healthy == 1", "dyn('a') == b'a'"),
    ),
    Law(
        "a version or a quantity can be asked only about its own kind",
        true=(
            f"{_G}.driverVersion == semver('580.95.5')",
            f"{_G}.driverVersion == semver('580.95.5+build.7')",
            f"{_C}.memory == quantity('81920Mi')",
            f"{_G}.driverVersion != '580.95.5'",
        ),
        fails=(f"{_G}.driverVersion == '580.95.5'", f"{_C}.memory == dyn(1)", f"{_G}.driverVersion == 580"),
    ),
    Law(
        "lists and maps are equal by their elements",
        true=(
            "[1, 2] == [1, 2]",
            "[dyn(1)] == [1.0]",
            "{'a': [1]} == {'a': [1]}",
            "{1: 'x'} == {dyn(1u): 'x'}",
            f"{_G}.numaNodes == [0, 1]",
            "[1] != [1, 2]",
            "{'a': 1} != {'b': 1}",
        ),
        false=("[1, 2] == [2, 1]", "{'a': 1} == {'a': 2}", "{'a': 1} == {'a': 1, 'b': 2}"),
    ),
    Law(
        "in looks for equal elements and for keys",
        true=(
            "1 in [1, 2]",
            "dyn(1.0) in [1, 2]",
            "'a' in {'a': 1}",
            f"'hbm' in {_G}.tags",
            f"1 in {_G}.numaNodes",
            f"{_G}.type in ['gpu', 'npu']",
            "dyn(1u) in {1: 'x'}",
        ),
        false=("3 in [1, 2]", "'b' in {'a': 1}", f"{_G}.index in [1, 2]", f"{_G}.index in ['3']", "1 in []"),
        fails=(f"'a' in {_G}.model", f"{_G}.missing in ['a']"),
    ),
)

LOGIC: Final = (
    Law(
        "and, or and not are those of two-valued logic",
        true=("true && true", "true || false", "!false", "!!true", "!(true && false)"),
        false=("true && false", "false || false", "!true"),
    ),
    Law(
        "a decided side wins over one that fails, on both sides",
        true=("1 / 0 == 1 || true", "true || 1 / 0 == 1", "1 / 0 == 1 || 1 / 0 == 1 || true"),
        false=("1 / 0 == 1 && false", "false && 1 / 0 == 1"),
        fails=("1 / 0 == 1 && true", "true && 1 / 0 == 1", "1 / 0 == 1 || false", "false || false || 1 / 0 == 1"),
    ),
    Law(
        "what is no bool fails where only the device tells",
        true=(f"{_G}.index || true", f"{_G}.healthy || {_G}.index"),
        fails=(
            f"!{_G}.index",
            f"{_G}.index && true",
            f"{_G}.model || false",
            f"{_G}.model ? true : false",
            f"{_G}.index",
        ),
    ),
    Law(
        "a conditional evaluates one branch",
        true=("true ? true : 1 / 0 == 1", "false ? 1 / 0 == 1 : true", "1 == 1 ? true : false ? false : false"),
        fails=("1 / 0 == 1 ? true : true",),
    ),
    Law("an attribute that is a bool is an answer", true=(f"{_G}.healthy",), false=(f"{_G}.mig",)),
    Law("an optional bool can be an answer", true=("dyn(optional.of(true))", f"dyn({_G}.?healthy)")),
)

DEVICE: Final = (
    Law(
        "attributes are read by domain and name, in brackets or by a dot",
        true=(
            f"{_G}.model == 'X100 SXM'",
            f"{_G}['model'] == 'X100 SXM'",
            "device.attributes['resource.kubernetes.io'].pcieRoot == 'pci0000:15'",
            "device.attributes['other.example.com'].index == -1",
            f"{_G}['mo' + 'del'] == 'X100 SXM'",
            "device.attributes[device.driver].model == 'X100 SXM'",
        ),
        false=(f"{_G}.model == 'x100 sxm'",),
    ),
    Law(
        "the driver is a text",
        true=("device.driver == 'gpu.example.com'", "device.driver.startsWith('gpu.')", "device . driver != ''"),
    ),
    Law("sharing is a bool", true=("device.allowMultipleAllocations", "device.allowMultipleAllocations == true")),
    Law(
        "capacity is a quantity",
        true=(
            f"{_C}.memory.compareTo(quantity('40Gi')) > 0",
            f"{_C}.cores.asInteger() == 128",
            "device.capacity['other.example.com'].bandwidth.isGreaterThan(quantity('100G'))",
        ),
    ),
    Law(
        "a missing attribute fails, a missing domain is an empty map",
        true=(
            "device.attributes['nowhere'] == {}",
            "size(device.attributes['nowhere']) == 0",
            "!has(device.attributes['nowhere'].x)",
            "!('x' in device.attributes['nowhere'])",
            "device.capacity['nowhere'].size() == 0",
        ),
        fails=(
            f"{_G}.missing == 1",
            "device.attributes['nowhere'].x == 1",
            f"{_C}.missing == quantity('1')",
            f"{_G}.missing != 1",
        ),
    ),
    Law(
        "has and in tell what is there",
        true=(
            f"has({_G}.model)",
            f"!has({_G}.missing)",
            "has(device.attributes)",
            f"'model' in {_G}",
            "'gpu.example.com' in device.attributes",
            "has(device.driver)",
            f"has({_C}.memory)",
            "'gpu.example.com' in device.capacity",
            "has({'a': 1}.a) && !has({'a': 1}.b)",
        ),
        false=("'nowhere' in device.attributes", "has(device.attributes.nowhere.x)", f"'missing' in {_G}"),
    ),
    Law(
        "a domain without its driver is not guessed",
        fails=("device.attributes['gpu'].model == 'x'", "device.attributes['gpu.example.com/model'].x == 1"),
        false=("'gpu.example.com/model' in device.attributes",),
    ),
    Law(
        "maps of facts can be gone through",
        true=(
            "device.attributes.exists(d, d == 'resource.kubernetes.io')",
            f"{_G}.exists(n, n == 'index')",
            f"{_G}.exists(n, v, n == 'index' && v == 3)",
            "device.attributes.size() == 3",
            f"{_C}.all(n, q, q.isGreaterThan(quantity('1')))",
            "device.attributes.map(d, d.size()).max() == 22",
            "device.capacity.exists(d, m, 'bandwidth' in m)",
            "dyn(device).attributes == device.attributes",
            "cel.bind(d, device.attributes['gpu.example.com'], d.index == 3 && d.healthy)",
            "cel.bind(d, device, d.driver == 'gpu.example.com')",
        ),
    ),
    Law(
        "list attributes are lists, and a single value includes itself",
        true=(
            f"{_G}.numaNodes.includes(1)",
            f"{_G}.index.includes(3)",
            f"{_G}.tags.includes('hbm')",
            f"{_G}.model.includes('X100 SXM')",
            f"{_G}.tags[1] == 'hbm'",
            f"{_G}.tags.size() == 2",
            f"{_G}.tags.exists(t, t.startsWith('nv'))",
            f"{_G}.firmwares[0].isLessThan({_G}.firmwares[1])",
            f"{_G}.flags[0]",
            f"{_G}.firmwares.exists(v, v == semver('1.2.3'))",
            "['a', 'b'].includes('a')",
        ),
        false=(f"{_G}.numaNodes.includes(2)", f"{_G}.index.includes(4)", f"{_G}.numaNodes.includes('1')"),
        fails=(f"{_G}.tags[2] == 'x'", f"{_G}.missing.includes(1)", f"{_G}.tags.startsWith('n')"),
    ),
)

MACROS: Final = (
    Law(
        "all and exists stop at the deciding element and pass over failing ones",
        true=(
            "[1, 2].all(x, x > 0)",
            "[].all(x, x > 0)",
            "[0, 1].exists(x, 1 / x == 1)",
            "{'a': 1, 'b': 2}.all(k, k in ['a', 'b'])",
            "[1, 2].exists(x, x == 2)",
        ),
        false=("[0, 1].all(x, 1 / x == 2)", "[].exists(x, x > 0)", "[1, 2].all(x, x > 1)"),
        fails=("[0].exists(x, 1 / x == 1)", "[0, 1].all(x, 1 / x == 1)", "[0, 2].exists(x, 1 / x == 1)"),
    ),
    Law(
        "exists_one counts, and fails with any element",
        true=("[1, 2].exists_one(x, x == 1)", "[1, 2].existsOne(i, x, x == 1)", "{'a': 1}.exists_one(k, v, v == 1)"),
        false=("[1, 1].exists_one(x, x == 1)", "[].exists_one(x, x == 1)"),
        fails=("[1, 0].exists_one(x, 1 / x == 1)",),
    ),
    Law(
        "map and filter make lists",
        true=(
            "[1, 2].map(x, x * 2) == [2, 4]",
            "[1, 2, 3].map(x, x > 1, x * 2) == [4, 6]",
            "[1, 2, 3].filter(x, x % 2 == 1) == [1, 3]",
            "{'a': 1}.map(k, k) == ['a']",
            "{'a': 1}.filter(k, k == 'a') == ['a']",
            "[[1], [2]].map(x, x[0]) == [1, 2]",
        ),
        fails=("[0].map(x, 1 / x) == [1]", "[0, 1].filter(x, 1 / x == 1) == [1]"),
    ),
    Law(
        "two variables are index and element, or key and value",
        true=(
            "[5, 6].all(i, v, v == i + 5)",
            "[5, 6].exists(i, v, i == 1 && v == 6)",
            "[5, 6].transformList(i, v, i * v) == [0, 6]",
            "[5, 6].transformList(i, v, i > 0, v) == [6]",
            "{'a': 1}.transformList(k, v, k + string(v)) == ['a1']",
            "[5].transformMap(i, v, v * 2) == {0: 10}",
            "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v) == {'b': 2}",
            "{'a': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}",
            "{'a': 1, 'b': 2}.transformMapEntry(k, v, v > 1, {v: k}) == {2: 'b'}",
        ),
        fails=("{'a': 1, 'b': 1}.transformMapEntry(k, v, {v: k}) == {}",),
    ),
    Law(
        "a variable hides what is outside, and is gone afterwards",
        true=(
            "[1].all(x, [2].all(x, x == 2) && x == 1)",
            "[1].exists(device, device == 1)",
            "cel.bind(x, 1, cel.bind(x, x + 1, x)) == 2",
        ),
    ),
    Law(
        "bind gives a value a name, and computes it when it is used",
        true=("cel.bind(x, 1 / 0, true)", "cel.bind(x, 3, x * x) == 9", "cel.bind(l, [1, 2], l.all(x, x in l))"),
        fails=("cel.bind(x, 1 / 0, x == 1)",),
    ),
    Law(
        "sortBy sorts by a key",
        true=(
            "[3, 1, 2].sortBy(x, -x) == [3, 2, 1]",
            "['bb', 'a'].sortBy(s, s.size()) == ['a', 'bb']",
            "[3, 1].sortBy(x, uint(x)) == [1, 3]",
            "[3, 1].sortBy(x, double(x)) == [1, 3]",
            "[3, 1].sortBy(x, x == 3) == [1, 3]",
            "[3, 1].sortBy(x, string(x)) == [1, 3]",
            "[3, 1].sortBy(x, bytes(string(x))) == [1, 3]",
            "[3, 1].sortBy(x, timestamp(x)) == [1, 3]",
            "['3s', '1s'].sortBy(x, duration(x)) == ['1s', '3s']",
        ),
    ),
    Law(
        "what is neither list nor map cannot be gone through",
        fails=(f"{_G}.model.all(x, true)", f"{_G}.index.exists(x, true)", f"{_G}.index.map(x, x) == []"),
    ),
)

OPTIONALS: Final = (
    Law(
        "optional steps lead to a value or to none",
        true=(
            f"{_G}.?model.hasValue()",
            f"!{_G}.?missing.hasValue()",
            f"{_G}.?missing.orValue(7) == 7",
            f"{_G}.?index.orValue(7) == 3",
            f"{_G}[?'model'].value() == 'X100 SXM'",
            "device.attributes.?nowhere.?x.orValue(true)",
            "{'a': {'b': 1}}.?a.b == optional.of(1)",
            "{'a': {'b': 1}}.?a.?c == optional.none()",
            "optional.of({'a': 1}).a == optional.of(1)",
            "optional.of([5])[0] == optional.of(5)",
            "optional.of({'a': 1})['a'] == optional.of(1)",
            "[5][?0] == optional.of(5)",
            "[5][?1] == optional.none()",
            "{1: 2}[?1] == optional.of(2)",
            "optional.of([5])[?0] == optional.of(5)",
            "optional.of({1: 2})[?2] == optional.none()",
            "has({'a': {'b': 1}}.?a.b)",
        ),
        fails=(f"{_G}.?missing.value() == 1", "optional.none().value() == 1"),
    ),
    Law(
        "or and orValue look at the second only without the first",
        true=(
            "optional.of(1).or(optional.of(1 / 0)) == optional.of(1)",
            "optional.none().or(optional.of(2)).value() == 2",
            "optional.of(1).orValue(1 / 0) == 1",
            "optional.none().orValue(2) == 2",
        ),
        fails=("optional.none().orValue(1 / 0) == 1",),
    ),
    Law(
        "optMap and optFlatMap go on with the value",
        true=(
            f"{_G}.?index.optMap(i, i + 1).orValue(0) == 4",
            f"{_G}.?missing.optMap(i, i + 1).orValue(0) == 0",
            f"{_G}.?index.optFlatMap(i, i > 5 ? optional.of(i) : optional.none()).orValue(0) == 0",
            "optional.of([1]).optFlatMap(l, l[?0]) == optional.of(1)",
        ),
    ),
    Law(
        "ofNonZeroValue takes zero and empty for none",
        true=(
            "!optional.ofNonZeroValue(0).hasValue()",
            "!optional.ofNonZeroValue('').hasValue()",
            "!optional.ofNonZeroValue([]).hasValue()",
            "!optional.ofNonZeroValue({}).hasValue()",
            "!optional.ofNonZeroValue(null).hasValue()",
            "optional.ofNonZeroValue(1).hasValue()",
            f"!optional.ofNonZeroValue({_G}.empty).hasValue()",
        ),
    ),
    Law(
        "optional elements and entries are left out when they are none",
        true=(
            "[?optional.none(), 1] == [1]",
            "[?optional.of(0), 1] == [0, 1]",
            "{?'a': optional.none(), 'b': 1} == {'b': 1}",
            "{?'a': optional.of(1)} == {'a': 1}",
            f"[?{_G}.?missing, ?{_G}.?index] == [3]",
        ),
    ),
    Law(
        "lists give their first and last element as optionals, and optionals unwrap to a list",
        true=(
            "[1, 2].first() == optional.of(1)",
            "[1, 2].last() == optional.of(2)",
            "![].first().hasValue()",
            "optional.unwrap([optional.of(1), optional.none()]) == [1]",
            "[optional.of(1), optional.none()].unwrapOpt() == [1]",
            f"{_G}.tags.last().value() == 'hbm'",
        ),
    ),
    Law(
        "optionals are equal by their values",
        true=(
            "optional.of(1) == optional.of(1)",
            "optional.none() == optional.none()",
            "optional.of(1) != optional.none()",
        ),
    ),
)

LANGUAGE: Final = (*LITERALS, *ARITHMETIC, *COMPARISONS, *LOGIC, *DEVICE, *MACROS, *OPTIONALS)
