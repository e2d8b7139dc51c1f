"""Tempo, our policy: policy.py says what it does, and each other file holds one idea of it."""

from fedtempo.policies.tempo.options import TempoOptions
from fedtempo.policies.tempo.policy import Tempo

__all__ = ["Tempo", "TempoOptions"]
