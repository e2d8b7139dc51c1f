"""The paper's tables and figures, beside its own numbers."""
