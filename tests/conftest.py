"""Settings for all tests."""

from hypothesis import settings

# The first call of a kernel may compile it: no example has a deadline.
settings.register_profile("meander", deadline=None)
settings.load_profile("meander")
