"""CEL rules of a DeviceClaim, as the API server evaluates them. `validate_claim` says the same offline.

Everything here is local to one object. Lists and strings that a rule walks are bounded in the model, or the server
would refuse the rule as too costly. Rules also run on objects whose fields broke the schema, so none may rely on it.
"""

from typing import Final

from adjoin.api.marks import frozen, frozen_list, optional, rule
from adjoin.api.names import CLAIM_NAME_MAX, DEVICES_PER_CLAIM, DEVICES_PER_RESOURCE_CLAIM


def _count(item: str) -> str:
    """Devices that one request or alternative can take, at most."""
    every, some = optional(f"{item}.all", "false"), optional(f"{item}.count", "1")
    return f"({every} ? {DEVICES_PER_RESOURCE_CLAIM} : {some})"


def _most(item: str) -> str:
    """Devices that a request can take with any of its alternatives, at most."""
    return (
        f"(has({item}.firstOf) && size({item}.firstOf) > 0 "
        f"? {item}.firstOf.map(f, {_count('f')}).max() : {_count(item)})"
    )


_NONE_HOLD: Final = "(!has(self.requests) || size(self.requests) == 0)"
_NAMES: Final = f"{optional('self.requests', '[]')}.map(r, r.name)"
_UNKNOWN_NAMES: Final = (
    "self.affinity.map(a, a.requests.filter(n, !(has(self.requests) && self.requests.exists(r, r.name == n))))"
    ".filter(l, size(l) > 0)"
)
_DEVICES: Final = f"(has(self.requests) ? self.requests.map(r, {_most('r')}).sum() : 0)"
_MODE: Final = optional("self.scaling.mode", "'Fixed'")
_SCALING_MODE: Final = optional("self.mode", "'Fixed'")
_REPLICAS: Final = optional("self.replicas", "1")
_MOST_REPLICAS: Final = f"(has(self.replicas) ? self.replicas : {optional('self.scaling.maxReplicas', '1')})"


OBJECT: Final = (
    rule(
        f"size(self.metadata.name) <= {CLAIM_NAME_MAX}",
        says=f"'metadata.name has %d characters; a claim may have {CLAIM_NAME_MAX}, since objects made for it carry "
        "its name and more'.format([size(self.metadata.name)])",
    ),
)

SHARE: Final = (
    rule(
        "[has(self.slots), has(self.memory) || has(self.compute), has(self.profile)].filter(x, x).size() <= 1",
        "slots (TimeSliced), memory and compute (Fractional, MPS) and profile (Partitioned) exclude each other",
    ),
    rule(
        "!has(self.memory) || (type(self.memory) == int ? self.memory > 0 "
        ": string(self.memory).matches('^[0-9.]*[1-9]'))",
        says="'memory %s must be greater than 0, such as 8Gi; leave it out for no limit'.format([string(self.memory)])",
        path=".memory",
    ),
)

COUNT: Final = (
    rule(
        "!(has(self.all) && self.all && has(self.count))",
        says="'count %d beside all: true, which takes every matching device of the node; leave out one of the two'"
        ".format([self.count])",
        path=".count",
    ),
    rule(
        "!(has(self.sameDevice) && self.sameDevice) || has(self.share)",
        "sameDevice: true needs a share; whole devices are always different ones",
        path=".sameDevice",
    ),
)

REQUEST: Final = (
    *COUNT,
    rule(
        "!has(self.firstOf) || size(self.firstOf) == 0 || !(has(self.count) || has(self.all) "
        "|| has(self.share) || has(self.sameDevice) || has(self.isolation) "
        "|| (has(self.selectors) && size(self.selectors) > 0))",
        "beside firstOf a request has only name and device; put the rest into the alternatives",
        path=".firstOf",
    ),
    *(frozen(field, "claim") for field in ("device", "count", "all", "sameDevice", "isolation")),
    *(frozen_list(field, "claim") for field in ("selectors", "firstOf")),
    rule(
        "has(self.share) ? has(oldSelf.share) && self.share.name == oldSelf.share.name "
        "&& has(self.share.slots) == has(oldSelf.share.slots) "
        "&& (!has(self.share.slots) || self.share.slots == oldSelf.share.slots) "
        "&& has(self.share.profile) == has(oldSelf.share.profile) "
        "&& (!has(self.share.profile) || self.share.profile == oldSelf.share.profile) : !has(oldSelf.share)",
        "share is immutable but for memory and compute; delete the claim and create it anew",
        path=".share",
    ),
)

ALTERNATIVES: Final = (
    rule(
        "self.all(x, self.exists_one(y, y.name == x.name))",
        says="'names of alternatives must differ, found %s'.format([self.map(x, x.name)])",
    ),
)

AFFINITY_REQUESTS: Final = (
    rule(
        "self.all(x, self.exists_one(y, y == x))",
        says="'a request may stand only once in a line, found %s'.format([self])",
    ),
)

AFFINITY: Final = (
    rule("has(self.scope) != has(self.attribute)", "give exactly one of scope and attribute"),
    rule(
        "!has(self.scope) || has(self.attribute) || !has(self.policy) || self.policy in ['Required', 'Preferred']",
        says="'policy %s does not go with a scope; use Required or Preferred'.format([self.policy])",
        path=".policy",
    ),
    rule(
        "!has(self.attribute) || has(self.scope) || (has(self.policy) && self.policy in ['Match', 'Distinct'])",
        says="has(self.policy) ? 'policy %s does not go with an attribute; use Match or "
        "Distinct'.format([self.policy]) "
        ": 'attribute %s needs a policy: Match or Distinct'.format([self.attribute])",
        path=".policy",
    ),
    rule(
        "!has(self.over) || has(self.attribute)",
        says="'over %s is for attributes; leave it out with a scope'.format([self.over])",
        path=".over",
    ),
)

FABRIC: Final = (
    rule(
        "has(self.required) || has(self.preferred) || has(self.segment)",
        "give at least one of required, preferred and segment",
    ),
)

HOST: Final = (rule("has(self.cpu) || has(self.memory)", "give at least one of cpu and memory"),)

SCALING: Final = (
    rule(
        f"{_SCALING_MODE} == 'FollowPods' || (!has(self.minReplicas) && !has(self.maxReplicas))",
        "minReplicas and maxReplicas go with mode FollowPods; with mode Fixed set spec.replicas",
    ),
    rule(
        f"{_SCALING_MODE} != 'FollowPods' || has(self.maxReplicas)",
        "mode FollowPods needs maxReplicas",
    ),
    rule(
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        says="'minReplicas %d is more than maxReplicas %d'.format([self.minReplicas, self.maxReplicas])",
        path=".minReplicas",
    ),
)

SPEC: Final = (
    rule(
        f"!{_NONE_HOLD} || has(self.host)",
        "requests must hold at least one request (it may be empty only if host is given)",
    ),
    rule(
        "!has(self.affinity) || self.affinity.all(a, a.requests.all(n, "
        "has(self.requests) && self.requests.exists(r, r.name == n)))",
        says=f"'no request is named %s; the requests are %s'.format([{_UNKNOWN_NAMES}[0][0], {_NAMES}])",
        path=".affinity",
    ),
    rule(
        f"{_MOST_REPLICAS} * {_DEVICES} <= {DEVICES_PER_CLAIM}",
        says=f"'%d replicas of %d devices are more than the {DEVICES_PER_CLAIM} devices that a claim may have (all: "
        f"true counts as {DEVICES_PER_RESOURCE_CLAIM}); use several claims'.format([{_MOST_REPLICAS}, {_DEVICES}])",
    ),
    rule(
        f"{_MODE} != 'FollowPods' || (!has(self.replicas) && !has(self.gang))",
        "with scaling mode FollowPods leave out replicas and gang; the pods decide",
    ),
    rule(
        f"!has(self.gang) || !has(self.gang.minReplicas) || self.gang.minReplicas <= {_REPLICAS}",
        says=f"'minReplicas %d is more than replicas %d'.format([self.gang.minReplicas, {_REPLICAS}])",
        path=".gang.minReplicas",
    ),
    rule(
        f"!has(self.gang) || {_REPLICAS} >= 1",
        "a gang needs at least one replica; use suspend: true to hold none",
        path=".replicas",
    ),
    rule(
        "!has(self.priorityClassName) || !has(self.priority) || self.priority == 0",
        says="'priority %d beside priorityClassName; leave out one of the two'.format([self.priority])",
        path=".priority",
    ),
    rule(
        f"{_NONE_HOLD} ? (!has(oldSelf.requests) || size(oldSelf.requests) == 0) : (has(oldSelf.requests) "
        "&& size(self.requests) == size(oldSelf.requests) "
        "&& self.requests.all(r, oldSelf.requests.exists(o, o.name == r.name)))",
        "requests are immutable; delete the claim and create it anew",
        path=".requests",
    ),
    frozen_list("affinity", "claim"),
    *(frozen(field, "claim") for field in ("poolRef", "gang", "fabric")),
)
