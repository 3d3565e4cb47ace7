"""Adjoin's allocator: a pure library that decides who gets which devices.

It knows nothing of Kubernetes, does no I/O, reads no clock and draws no random numbers: `plan(snapshot, now)` is a function of its
arguments.
"""
