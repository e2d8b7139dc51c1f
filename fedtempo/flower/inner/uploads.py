"""How soon Flower's grid sees that an upload is complete."""

from functools import partial


def notice_ends_of_uploads(first_pause: float, longest_pause: float) -> bool:
    """Let Flower's grid look for the end of an upload after so many seconds, and again after at most so many.

    By itself it pauses for one second, then for twice as long each time up to ten: uploads of eight seconds are seen
    after fifteen. These pauses are defaults of a function and no setting of Flower's; nothing else of it changes. It
    gives up after two hours, as before. Return False where this version of Flower has no such function.
    """
    try:
        from flwr.supercore.inflatable.inflatable_utils import pull_objects
        from flwr.superlink.grid import http_grid
    except ImportError:
        return False
    if not hasattr(http_grid, "pull_objects"):
        return False
    http_grid.pull_objects = partial(  # where the grid looks the function up
        pull_objects, initial_backoff=first_pause, backoff_cap=longest_pause, max_tries_per_object=None
    )
    return True
