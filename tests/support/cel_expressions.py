"""Random expressions, each made from one number: mostly well typed, about every function, now and then wrong.

A rule is a text with holes: `$int` stands for any expression of that kind, `$(bool x:int)` for one in which `x` is an
int, `«==¦!=»` for one of the alternatives. `mutated` damages what came out, token by token, to see the same refusals.
"""

from __future__ import annotations

import random
import re
from typing import Final

_HOLE: Final = re.compile(r"\$(\w+)|\$\((\w+) ([^)]*)\)")
_CHOICE: Final = re.compile("«([^»]*)»")

_DOMAINS: Final = ("gpu.example.com", "net.example.com", "resource.kubernetes.io", "other.example.com", "nowhere")
_NAMES: Final = (
    *("model", "type", "index", "healthy", "mig", "driverVersion", "uuid", "empty", "address", "serviced"),
    *("numaNodes", "tags", "flags", "firmwares", "pcieRoot", "rdma", "rail", "speed", "missing"),
)
_AMOUNTS: Final = ("memory", "cores", "share", "bandwidth", "missing")

_LEAVES: Final[dict[str, tuple[str, ...]]] = {
    "bool": (
        "true",
        "false",
        "device.allowMultipleAllocations",
        "has($fact)",
        "'$domain' in device.attributes",
        "$fact",
    ),
    "int": ("0", "1", "2", "-1", "3", "400", "0x10", "9223372036854775807", "-9223372036854775808"),
    "uint": ("0u", "1u", "5u", "18446744073709551615u"),
    "double": ("0.0", "1.5", "-2.25", "1e3", "0.1", "1e300"),
    "string": (
        *("''", "'a'", "'gpu'", "'X100 SXM'", "'400'", "'net.example.com'", "'type'", "'index'", "'é'", "'1.2.3'"),
        *("'a,b,c'", "'10.0.0.1'", "'40Gi'", "'true'", "' x '", '"q\\"q"', "'a1b22'", "'2026-03-01'", "'-5'", "'1.5'"),
        *("device.driver", "'$name'"),
    ),
    "bytes": ("b'ab'", "b''", r"b'\xff'", "b'é'"),
    "duration": ("duration('1h')", "duration('-90.5s')", "duration('0')"),
    "timestamp": (
        "timestamp('2024-02-29T12:34:56.789Z')",
        "timestamp('1969-12-31T23:59:59+05:30')",
        "timestamp(0)",
    ),
    "quantity": (
        *("quantity('40Gi')", "quantity('1500m')", "quantity('0')", "quantity('79G')", "quantity('1.5Gi')"),
        *("$amount", "$amount"),
    ),
    "semver": (
        *("semver('1.2.3')", "semver('550.0.0')", "semver('v1.2', true)", "semver('1.0.0-rc.1')"),
        "device.attributes['gpu.example.com'].driverVersion",
    ),
    "ip": ("ip('10.0.0.1')", "ip('::1')", "ip('fe80::1')", "ip('224.0.0.1')", "cidr('10.1.2.3/8').ip()"),
    "cidr": ("cidr('10.0.0.0/8')", "cidr('::/0')", "cidr('192.168.1.5/24')", "cidr('10.0.0.0/33')"),
    "optional": (
        *("optional.none()", "optional.of(1)", "[1][?0]", "device.attributes[?'$domain']"),
        "device.attributes['$domain'].?$name",
    ),
    "list_int": ("[1, 2, 3]", "[]", "[3, 1]", "[0]", "device.attributes['gpu.example.com'].numaNodes"),
    "list_string": ("['a', 'b']", "['gpu', 'npu']", "[]", "['x']", "device.attributes['gpu.example.com'].tags"),
    "list_dyn": ("[dyn(1), dyn('a')]", "device.attributes['gpu.example.com'].firmwares"),
    "map": ("{}", "{'a': 1}", "{'a': 1, 'b': 2}", "{'rdma': 5, ?'z': optional.none()}"),
    "dyn": ("$fact", "$fact", "$fact", "dyn($any)"),
    "null": ("null",),
    "fact": ("device.attributes['$domain'].$name", "device.attributes['$domain']['$name']"),
    "amount": ("device.capacity['$domain'].$amountname",),
    "literal": ("$string", "$int", "$bool", "$semver", "$double", "$list_int", "$list_string"),
    "domain": _DOMAINS,
    "name": _NAMES,
    "amountname": _AMOUNTS,
    "type": (
        *("int", "uint", "double", "string", "bytes", "bool", "list", "map", "null_type", "type", "net.IP"),
        *("google.protobuf.Duration", "optional_type"),
    ),
    "range": ("$list_int", "$list_string", "$map", "$dyn"),
}

_BRANCHES: Final[dict[str, tuple[str, ...]]] = {
    "bool": (
        "($bool «&&¦||» $bool)",
        "($bool && $bool && $bool)",
        "!($bool)",
        "($bool ? $bool : $bool)",
        "($any) «==¦!=» ($any)",
        "($int) «==¦!=» ($int)",
        "($string) «==¦!=» ($string)",
        "($list_int) «==¦!=» ($list_dyn)",
        "($map) «==¦!=» ($map)",
        "$dyn «==¦!=» $literal",
        "$dyn «==¦!=» $literal",
        "($int) «<¦<=¦>¦>=» ($int)",
        "($string) «<¦<=¦>¦>=» ($string)",
        "($double) «<¦<=¦>¦>=» ($dyn)",
        "($dyn) «<¦<=¦>¦>=» ($uint)",
        "($duration) «<¦<=¦>¦>=» ($duration)",
        "($timestamp) «<¦<=¦>¦>=» ($timestamp)",
        "($bytes) «<¦<=¦>¦>=» ($bytes)",
        "($bool) «<¦<=¦>¦>=» ($bool)",
        "$literal in $range",
        "$string in [$string, 'gpu']",
        "$string.«startsWith¦endsWith¦contains»($string)",
        "$dyn.«startsWith¦endsWith¦contains»($string)",
        "$dyn.matches(«'^a.*'¦'[0-9]+'¦'(?i)x100'¦'^X'»)",
        "$string.matches($string)",
        "$list_int.«all¦exists¦exists_one»(x, $(bool x:int))",
        "$list_string.«all¦exists¦exists_one»(x, $(bool x:string))",
        "$map.«all¦exists¦exists_one»(x, $(bool x:string))",
        "$dyn.«all¦exists¦exists_one»(x, $(bool x:dyn))",
        "$list_int.«all¦exists¦existsOne»(i, v, $(bool i:int,v:int))",
        "device.attributes['$domain'].«all¦exists¦existsOne»(k, v, $(bool k:string,v:dyn))",
        "device.«attributes¦capacity».«all¦exists¦exists_one»(k, $(bool k:string))",
        "has($map.a)",
        "has($dyn.x)",
        "$quantity.«isGreaterThan¦isLessThan»($quantity)",
        "$semver.«isGreaterThan¦isLessThan»($semver)",
        "$dyn.«isGreaterThan¦isLessThan»($semver)",
        "«isQuantity¦isSemver¦isURL¦isIP¦isCIDR¦bool»($string)",
        "isSemver($string, $bool)",
        "sets.«contains¦intersects¦equivalent»($list_string, $list_string)",
        "sets.«contains¦intersects¦equivalent»($list_int, $dyn)",
        "«$list_int¦$list_string¦$dyn».isSorted()",
        "$optional.hasValue()",
        "$optional.orValue($bool)",
        "$dyn.includes($literal)",
        "$quantity.isInteger()",
        "$ip.«isLoopback¦isUnspecified¦isGlobalUnicast¦isLinkLocalUnicast¦isLinkLocalMulticast»()",
        "$cidr.containsIP(«$ip¦'10.1.2.3'¦$string»)",
        "$cidr.containsCIDR(«$cidr¦'10.0.0.0/16'»)",
        "type($any) == $type",
        "cel.bind(b, $any, $(bool b:dyn))",
        "cel.bind(m, device.attributes['$domain'], m.$name == $literal)",
        "$list_int.«max¦min»() == $int",
        "device.«attributes¦capacity» == «{}¦device.attributes»",
        "format.«dns1123Label¦uuid¦date¦datetime¦byte¦labelValue¦qualifiedName¦uri»().validate($string).hasValue()",
        "device.attributes['$domain'].?$name.optMap(o, $(bool o:dyn)).orValue(false)",
        "device.attributes['$domain'].?$name.orValue($literal) == $literal",
    ),
    "int": (
        "($int «+¦-¦*¦/¦%» $int)",
        "($int «+¦-¦*¦/¦%» $dyn)",
        "-($int)",
        "size(«$string¦$list_int¦$map¦$bytes¦$dyn»)",
        "«$string¦$list_int¦$map¦$bytes¦$dyn».size()",
        "int(«$string¦$double¦$uint¦$int¦$dyn¦$duration¦$timestamp»)",
        "$quantity.asInteger()",
        "sign($quantity)",
        "$quantity.compareTo($quantity)",
        "$semver.«major¦minor¦patch»()",
        "$semver.compareTo($semver)",
        "$string.«indexOf¦lastIndexOf»($string«¦, $int»)",
        "$list_int.«sum¦max¦min»()",
        "$list_int.«indexOf¦lastIndexOf»($int)",
        "$list_int[$int]",
        "$map[$string]",
        "$timestamp.«getFullYear¦getMonth¦getDate¦getDayOfYear¦getDayOfMonth¦getDayOfWeek»(«¦'+02:30'¦'-08:00'»)",
        "$timestamp.«getHours¦getMinutes¦getSeconds¦getMilliseconds»(«¦'America/New_York'¦'-08:00'»)",
        "$duration.«getHours¦getMinutes¦getSeconds¦getMilliseconds»()",
        "($bool ? $int : $int)",
        "$ip.family()",
        "$cidr.prefixLength()",
        "$optional.orValue($int)",
    ),
    "uint": ("($uint «+¦-¦*¦/¦%» $uint)", "uint(«$int¦$double¦$string¦$dyn»)"),
    "double": (
        "($double «+¦-¦*¦/» $double)",
        "double(«$int¦$uint¦$string¦$dyn»)",
        "$quantity.asApproximateFloat()",
        "-($double)",
    ),
    "string": (
        "($string + $string)",
        "string(«$int¦$double¦$bool¦$uint¦$bytes¦$duration¦$timestamp¦$ip¦$cidr¦$dyn¦$string»)",
        "$string.«lowerAscii¦upperAscii¦trim»()",
        "$dyn.«lowerAscii¦upperAscii¦trim»()",
        "$string.substring($int«¦, $int»)",
        "$string.charAt($int)",
        "$string.replace($string, $string«¦, $int»)",
        "«$list_string¦$list_dyn».join(«¦$string»)",
        "$string.find(«'[0-9]+'¦'b*'¦$string»)",
        "'%s|%d|%f|%x'.format([$any, $int, $double, «$int¦$string¦$bytes»])",
        "'«%s¦%d¦%b¦%o¦%X¦%e¦%.3f»'.format([$any])",
        "strings.quote($string)",
        "($bool ? $string : $string)",
        "$list_string[$int]",
        "$optional.orValue($string)",
        "url('«https://a.b:80/c?x=1&x=2¦/p/q¦http://[::1]:8/¦mailto:a@b¦ftp://u:p@h/%41»').«getHost¦getHostname¦getPort»()",
        "url('«https://a.b:80/c?x=1&x=2¦/p/q¦ftp://u:p@h/%41»').«getScheme¦getEscapedPath»()",
    ),
    "bytes": ("bytes(«$string¦$dyn»)", "($bytes + $bytes)"),
    "quantity": ("quantity($string)", "$quantity.«add¦sub»($quantity)", "$quantity.«add¦sub»($int)"),
    "semver": ("semver($string«¦, true¦, false»)",),
    "duration": ("duration(«$string¦$dyn¦$duration»)", "($duration «+¦-» $duration)", "($timestamp - $timestamp)"),
    "timestamp": ("timestamp(«$int¦$string¦$dyn»)", "($timestamp «+¦-» $duration)"),
    "ip": ("ip($string)",),
    "cidr": ("cidr($string)", "$cidr.masked()"),
    "optional": (
        "optional.«of¦ofNonZeroValue»($any)",
        "$optional.or($optional)",
        "$list_int[?$int]",
        "$map[?$string]",
        "$map.?a",
        "$dyn.?«a¦type»",
        "«$list_int¦$list_string».«first¦last»()",
        "$dyn[?$literal]",
        "$optional.?a",
        "$optional[$literal]",
        "$optional.«optMap¦optFlatMap»(o, $(optional o:dyn))",
    ),
    "map": (
        "{'a': $int, $string: $int}",
        "{?'a': $optional}",
        "{$dyn: 1}",
        "$list_int.transformMap(k, v, $(int k:int,v:int))",
        "$map.transformMap(k, v, v > 1, $(int k:string,v:int))",
        "$map.transformMapEntry(k, v, {v: k})",
    ),
    "list_int": (
        "[$int, $int]",
        "[$int]",
        "[?$optional, $int]",
        "($list_int + $list_int)",
        "$list_int.map(x, $(int x:int))",
        "$list_int.map(x, $(bool x:int), x)",
        "$list_int.filter(x, $(bool x:int))",
        "$list_int.«sort¦reverse¦distinct»()",
        "$list_int.slice($int, $int)",
        "[$list_int, $list_int].flatten(«¦1¦2»)",
        "$list_int.sortBy(x, «$(int x:int)¦$(string x:int)»)",
        "$list_int.transformList(i, x, $(int i:int,x:int))",
        "lists.range($int)",
    ),
    "list_string": (
        "[$string, $string]",
        "($list_string + $dyn)",
        "$list_string.map(x, $(string x:string))",
        "$list_string.filter(x, $(bool x:string))",
        "$list_string.«sort¦reverse¦distinct»()",
        "$list_string.sortBy(x, $(string x:string))",
        "$string.split($string«¦, $int»)",
        "$string.findAll(«'[0-9]+'¦'b*'»«¦, $int»)",
    ),
    "list_dyn": ("[$dyn, $dyn]", "($list_int + $dyn)", "[$optional].unwrapOpt()", "$dyn.map(x, $(any x:dyn))"),
    "dyn": (
        "dyn($any)",
        "device.attributes['$domain'].?$name.orValue($any)",
        "($bool ? $dyn : $any)",
        "$dyn[«$int¦$string¦$dyn»]",
        "$dyn.«x¦type¦size»",
        "device.attributes[$string].$name",
        "cel.bind(d, device.attributes['$domain'], d.$name)",
        "device.attributes[?'$domain'].$name.value()",
    ),
}

_KINDS: Final = tuple(kind for kind in _BRANCHES if kind != "any")
_MISTAKES: Final = 0.015
_LONGEST: Final = 2000


class _Maker:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._variables: list[tuple[str, str]] = []

    def make(self, kind: str, depth: int) -> str:
        if self._random.random() < _MISTAKES:
            kind = self._random.choice(_KINDS)
        if kind == "any":
            kind = self._random.choice((*_KINDS, "null"))
        known = [name for name, its in self._variables if its == kind]
        if known and self._random.random() < 0.5:
            return self._random.choice(known)
        branches = _BRANCHES.get(kind, ()) if depth > 0 and self._random.random() < 0.9 else ()
        rule = self._random.choice(branches or _LEAVES[kind])
        rule = _CHOICE.sub(lambda match: self._random.choice(match[1].split("¦")), rule)
        return _HOLE.sub(lambda match: self._filled(match, depth - 1), rule)

    def _filled(self, match: re.Match[str], depth: int) -> str:
        if match[1]:
            return self.make(match[1], depth)
        names = [(name, kind) for name, _, kind in (part.partition(":") for part in match[3].split(","))]
        self._variables += names
        made = self.make(match[2], depth)
        del self._variables[-len(names) :]
        return made


def expression(seed: int) -> str:
    """The expression of that number."""
    draw = random.Random(~seed)
    maker = _Maker(seed)
    kind = "any" if draw.random() < 0.05 else "bool"
    made = maker.make(kind, draw.choice((1, 2, 2, 3, 3, 4)))
    return made if len(made) <= _LONGEST else maker.make("bool", 1)


_TOKEN: Final = re.compile(
    r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[A-Za-z_]\w*|\d+\.\d+|\d+|==|!=|<=|>=|&&|\|\||\s+|."
)
_FOREIGN: Final = (
    *("-", "!", "?", ".", "..", ",", "(", ")", "[", "]", "{", "}", ":", "&&", "||", "==", "in", "true", "null"),
    *("if", "as", "1", "1u", "1.5", ".5", "0x1F", "1e3", "'a'", "b'x'", r"r'\d'", '"""t"""', "'''q'''", r"'\x41'"),
    *(r"'\u00e9'", r"'\101'", r"'\q'", "'", "`a-b`", "`", "//c\n", "\n", "x", "device", ".device", ".size()", "[?"),
    *(".?", "[0]", ".x", "has(", ".all(x,", ".map(y,", "cel.bind(z,", "@", "#", "$", "\\", "é", "=", "&", "|", "<"),
    *("%", "/", "*", "+", "- -", "--", "!!", "{}", "[]", "[,]", "{,}", "{'a':1,}", "[1,]", "type", "int", ".a.b"),
    *("?:", "? 1 :", "net.IP", "0x", "1.", "1e", "9223372036854775808", "-9223372036854775808", "'a\nb'"),
    *("18446744073709551616u", '"\\U0001F600"', r"'\ud800'"),
)


def mutated(seed: int) -> str:
    """A short expression with one to three tokens lost, doubled, swapped or replaced by foreign ones."""
    draw = random.Random(seed)
    tokens = _TOKEN.findall(_Maker(seed).make("bool", draw.choice((0, 1, 1, 2))))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        place = draw.randrange(len(tokens) + 1)
        inside = min(place, len(tokens) - 1)
        what = draw.randrange(5) if len(tokens) > 1 else 1
        if what == 0:
            tokens.pop(inside)
        elif what == 1:
            tokens.insert(place, draw.choice(_FOREIGN))
        elif what == 2:
            tokens[inside] = draw.choice(_FOREIGN)
        elif what == 3:
            other = draw.randrange(len(tokens))
            tokens[inside], tokens[other] = tokens[other], tokens[inside]
        else:
            tokens.insert(place, draw.choice(tokens))
    return "".join(tokens)
