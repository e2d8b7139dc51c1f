"""Runs played again by hand: what each client computed, from the models that the server had."""

import numpy as np

from fedtempo.engine.clients import Start
from fedtempo.learning.trainer import NO_BUFFERS
from fedtempo.simulator.workers import Work


def played(loop, ahead=lambda model: model):
    """Yield, round by round, the record, the models before and after, the members' updates and staleness.

    Also the models from which the members started: ``ahead`` of the server's model at their start.
    """
    models, starts, step_size = [loop.state.model.copy()], [], loop.training.step_size
    rounds = loop.rounds()
    while True:
        starts.append(ahead(models[-1]))
        record = next(rounds, None)
        if record is None:
            return
        models.append(loop.state.model.copy())
        staleness = (record.note or {}).get("staleness", [0] * len(record.members))
        begun = [len(starts) - 1 - s for s in staleness]
        updates = [
            update_of(loop, client, starts[at], at, step_size) for client, at in zip(record.members, begun, strict=True)
        ]
        yield record, models[-2], models[-1], np.array(updates), np.array(staleness), [starts[at] for at in begun]


def update_of(loop, client, model, round_index, step_size):
    """Return what a client computes from a model in some round."""
    start = Start(
        model=model.astype(np.float32), buffers=NO_BUFFERS, round_index=round_index, rounds_done=round_index, time=0.0,
        step_size=step_size,
    )  # fmt: skip
    steps = np.array([loop.training.local_steps])
    work = Work(clients=np.array([client]), local_steps=steps, step_size=np.array([step_size]))
    return loop.clients.workers.train(work, start).update[0].astype(np.float64)
