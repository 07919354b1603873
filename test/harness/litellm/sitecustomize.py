"""Loaded by Python before LiteLLM, whose start makes a million objects that stay: the collector would search them again
and again, which takes a third of the start."""

import gc

gc.set_threshold(200_000, 50, 50)
