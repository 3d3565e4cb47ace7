"""CEL rules of a DeviceClaim, as the API server evaluates them. `validate_claim` says the same offline.

Everything here is local to one object. Lists and strings that a rule walks are bounded in the model, or the server
would refuse the rule as too costly. Rules also run on objects whose fields broke the schema, so none may rely on it.
"""

from typing import Final

from adjoin.api.marks import Mark, rule
from adjoin.api.names import CLAIM_NAME_MAX, DEVICES_PER_CLAIM, DEVICES_PER_RESOURCE_CLAIM

_REPLICAS: Final = "(has(self.replicas) ? self.replicas : self.?scaling.?maxReplicas.orValue(1))"


def _count(item: str) -> str:
    """Devices that one request or alternative can take, at most."""
    return f"({item}.?all.orValue(false) ? {DEVICES_PER_RESOURCE_CLAIM} : {item}.?count.orValue(1))"


def _single(item: str) -> str:
    return f"(!{item}.?all.orValue(false) && {item}.?count.orValue(1) == 1)"


_FIRST_OF: Final = "r.?firstOf.orValue([])"
_REQUESTS: Final = "self.?requests.orValue([])"
_LINES: Final = "self.?affinity.orValue([])"
_NAMES: Final = f"{_REQUESTS}.map(r, r.name)"
_DEVICES: Final = (
    f"{_REQUESTS}.map(r, size({_FIRST_OF}) > 0 ? {_FIRST_OF}.map(f, {_count('f')}).max() : {_count('r')}).sum()"
)
_UNKNOWN: Final = f"{_LINES}.map(a, a.requests.filter(n, !({_NAMES}).exists(k, k == n)).join(', ')).filter(s, s != '')"


def _frozen(field: str) -> Mark:
    return rule(
        f"self.?{field} == oldSelf.?{field}",
        f"{field} is immutable; delete the claim and create it anew",
        path=f".{field}",
    )


OBJECT: Final = (
    rule(
        f"size(self.metadata.name) <= {CLAIM_NAME_MAX}",
        says="'metadata.name ' + self.metadata.name + ' has ' + string(size(self.metadata.name)) + ' characters; a "
        "claim '"
        f" + 'may have {CLAIM_NAME_MAX}, since the objects made for it carry its name and more'",
    ),
)

SHARE: Final = (
    rule(
        "[has(self.slots), has(self.memory) || has(self.compute), has(self.profile)].filter(x, x).size() <= 1",
        "slots (TimeSliced), memory and compute (Fractional, MPS) and profile (Partitioned) exclude each other",
    ),
    rule(
        "!has(self.memory) || (type(self.memory) == int ? self.memory > 0 : "
        "string(self.memory).matches('^[0-9.]*[1-9]'))",
        says="'memory ' + string(self.memory) + ' must be greater than 0, such as 8Gi; leave it out for no limit'",
        path=".memory",
    ),
)

COUNT: Final = (
    rule(
        "!(self.?all.orValue(false) && has(self.count))",
        says="'count ' + string(self.count) + ' beside all: true; all takes every matching device of the node, so "
        "leave out one '"
        " + 'of the two'",
        path=".count",
    ),
    rule(
        "!self.?sameDevice.orValue(false) || has(self.share)",
        "sameDevice: true needs a share; whole devices are always different ones",
        path=".sameDevice",
    ),
)

REQUEST: Final = (
    *COUNT,
    rule(
        "size(self.?firstOf.orValue([])) == 0 || !(has(self.count) || has(self.all) || has(self.selectors) || "
        "has(self.share) || has(self.sameDevice) || has(self.isolation))",
        "beside firstOf a request has only name and device; put the rest into the alternatives",
        path=".firstOf",
    ),
    *(_frozen(field) for field in ("device", "count", "all", "selectors", "sameDevice", "isolation", "firstOf")),
    rule(
        "has(self.share) == has(oldSelf.share) && (!has(self.share) || (self.share.name == oldSelf.share.name && "
        "self.share.?slots == oldSelf.share.?slots && self.share.?profile == oldSelf.share.?profile))",
        "share is immutable but for memory and compute; delete the claim and create it anew",
        path=".share",
    ),
)

ALTERNATIVES: Final = (
    rule(
        "self.all(x, self.exists_one(y, y.name == x.name))",
        says="'names of alternatives must differ, there are ' + self.map(x, x.name).join(', ')",
    ),
)

AFFINITY_REQUESTS: Final = (
    rule(
        "self.all(x, self.exists_one(y, y == x))",
        says="'a request may stand only once in a line, there are ' + self.join(', ')",
    ),
)

AFFINITY: Final = (
    rule("has(self.scope) != has(self.attribute)", "give exactly one of scope and attribute"),
    rule(
        "!has(self.scope) || has(self.attribute) || !has(self.policy) || self.policy in ['Required', 'Preferred']",
        says="'policy ' + self.policy + ' does not go with a scope; use Required or Preferred'",
        path=".policy",
    ),
    rule(
        "!has(self.attribute) || has(self.scope) || (has(self.policy) && self.policy in ['Match', 'Distinct'])",
        says="(has(self.policy) ? 'policy ' + self.policy + ' does not go with' : 'a policy must be given for')"
        " + ' attribute ' + self.attribute + '; use Match or Distinct'",
        path=".policy",
    ),
    rule(
        "!has(self.over) || has(self.attribute)",
        says="'over ' + self.over + ' is for attributes; leave it out with a scope'",
        path=".over",
    ),
)

FABRIC: Final = (
    rule(
        "has(self.required) || has(self.preferred) || has(self.segment)",
        "give at least one of required, preferred, segment",
    ),
)

HOST: Final = (rule("has(self.cpu) || has(self.memory)", "give at least one of cpu and memory"),)

SCALING: Final = (
    rule(
        "self.?mode.orValue('Fixed') == 'FollowPods' || (!has(self.minReplicas) && !has(self.maxReplicas))",
        "minReplicas and maxReplicas go with mode FollowPods; with mode Fixed set spec.replicas",
    ),
    rule(
        "self.?mode.orValue('Fixed') != 'FollowPods' || has(self.maxReplicas)",
        "mode FollowPods needs maxReplicas",
    ),
    rule(
        "!has(self.maxReplicas) || self.?minReplicas.orValue(0) <= self.maxReplicas",
        says="'minReplicas ' + string(self.?minReplicas.orValue(0)) + ' is more than maxReplicas ' + "
        "string(self.maxReplicas)",
        path=".minReplicas",
    ),
)

SPEC: Final = (
    rule(
        f"size({_REQUESTS}) > 0 || has(self.host)",
        "requests must name at least one request (it may be empty only if host is given)",
    ),
    rule(
        f"{_UNKNOWN}.size() == 0",
        says=f"'affinity names no request of this claim: ' + {_UNKNOWN}.join(', ') + '; requests are: ' + "
        f"{_NAMES}.join(', ')",
        path=".affinity",
    ),
    rule(
        "self.?affinity.orValue([]).all(a, !has(a.scope) || size(a.requests) != 1 || "
        "!self.?requests.orValue([]).exists(r, "
        f"r.name == a.requests[0] && (size({_FIRST_OF}) > 0 ? {_FIRST_OF}.all(f, {_single('f')}) : {_single('r')})))",
        "a scope on one device: it needs at least two devices; raise the count, or name a second request",
        path=".affinity",
    ),
    rule(
        f"{_REPLICAS} * {_DEVICES} <= {DEVICES_PER_CLAIM}",
        says=f"string({_REPLICAS}) + ' replicas of ' + string({_DEVICES}) + ' devices are ' + string({_REPLICAS} * "
        f"{_DEVICES})"
        f" + '; a claim may have {DEVICES_PER_CLAIM} (all: true counts as {DEVICES_PER_RESOURCE_CLAIM}), so split it'",
    ),
    rule(
        "self.?scaling.?mode.orValue('Fixed') != 'FollowPods' || (!has(self.replicas) && !has(self.gang))",
        "with scaling mode FollowPods leave out replicas and gang; the pods decide",
    ),
    rule(
        "!has(self.gang) || !has(self.gang.minReplicas) || self.gang.minReplicas <= self.?replicas.orValue(1)",
        says="'minReplicas ' + string(self.gang.minReplicas) + ' is more than replicas ' + "
        "string(self.?replicas.orValue(1))",
        path=".gang.minReplicas",
    ),
    rule(
        "!has(self.gang) || self.?replicas.orValue(1) >= 1",
        "a gang needs at least one replica; use suspend: true to hold none",
        path=".replicas",
    ),
    rule(
        "!has(self.priorityClassName) || self.?priority.orValue(0) == 0",
        says="'priority ' + string(self.priority) + ' beside priorityClassName; leave out one of the two'",
        path=".priority",
    ),
    rule(
        "size(self.?requests.orValue([])) == size(oldSelf.?requests.orValue([])) && self.?requests.orValue([]).all(r, "
        "oldSelf.?requests.orValue([]).exists(o, o.name == r.name))",
        "requests are immutable; delete the claim and create it anew",
        path=".requests",
    ),
    rule(
        "self.?affinity.orValue([]) == oldSelf.?affinity.orValue([])",
        "affinity is immutable; delete the claim and create it anew",
        path=".affinity",
    ),
    *(_frozen(field) for field in ("poolRef", "gang", "fabric")),
)
