"""The plain PyTorch loop: one nn.Module for each client, torch.optim.SGD, batches by index."""

import numpy as np
import torch
from torch.nn import functional
from torch_models import make_model, mean_loss
from work import Measurement, make_data


def main() -> None:
    """Train and report."""
    torch.set_num_threads(1)
    run = Measurement.from_arguments(__doc__)
    work = run.work
    arrays = make_data(work.setup)
    inputs, labels = (torch.from_numpy(array) for array in arrays[:2])
    offsets = arrays[2].tolist()

    server = make_model(work)
    clients = [make_model(work) for _ in range(work.num_clients)]
    rng = np.random.default_rng(0)
    for _ in range(run.total_rounds):
        cohort = rng.choice(work.num_clients, size=work.cohort_size, replace=False).tolist()
        for client in cohort:
            model = clients[client]
            model.load_state_dict(server.state_dict())
            optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate)
            for _ in range(work.local_steps):
                batch = torch.randint(offsets[client], offsets[client + 1], (work.batch_size,))
                optimizer.zero_grad()
                functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
                optimizer.step()
                run.trained += len(batch)

        sizes = [offsets[client + 1] - offsets[client] for client in cohort]
        states = [clients[client].state_dict() for client in cohort]
        mean = {
            name: sum(state[name] * (size / sum(sizes)) for state, size in zip(states, sizes, strict=True))
            for name in states[0]
        }
        server.load_state_dict(mean)
        if run.evaluation_due:
            run.loss = mean_loss(server, inputs, labels, work.evaluation_batch)
            run.evaluated += len(labels)
        run.round_ended()
    run.report("plain_torch", torch.__version__)


if __name__ == "__main__":
    main()
