"""Runs side by side: what their records show, statistics, tables and figures."""
