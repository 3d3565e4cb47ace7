"""What holds for every test: how random examples are drawn."""

from hypothesis import HealthCheck, settings

# Machines are shared: how long an example takes says nothing about the code, so no test fails for that.
settings.register_profile("adjoin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("adjoin")
