"""The uplink that clients share: who may send how fast, and how long uploads took."""
