"""What is started on entry to a block and stopped on exit, however that ends."""

from typing import Self


class Startable:
    """As a context, started on entry and stopped on exit."""

    def start(self) -> None:
        """Start."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop, and leave nothing behind."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Start."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, in whatever way the block ended."""
        self.stop()
