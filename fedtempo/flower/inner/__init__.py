"""Every use of Flower's inner modules, which any release of Flower may change; no other module imports them.

Public are ``flwr.app``, ``flwr.clientapp`` and ``flwr.serverapp``. All that stands here was tried with flwr 1.41.0. The
strategy needs ``uploads`` alone, which does nothing where Flower has changed; ``control``, ``executor`` and
``client_program`` are for the testbed and for commands that start Flower's programs.
"""
