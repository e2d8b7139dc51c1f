"""Flower's simulation: ServerApp and ClientApp with FedAvg on Ray, one actor of one thread for the clients.

Run from this directory's run.py, the actor, the server and Ray's own processes share one core.
"""

import logging
import os
from importlib.metadata import version

import torch
from flower_client import client_app, tensors
from flwr.app import ArrayRecord, Context, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch_models import make_model, mean_loss
from work import Measurement


def server_app(run: Measurement) -> ServerApp:
    """Return the server that runs all rounds and evaluates on its own."""
    work = run.work
    app = ServerApp()

    def sum_trained(replies: list[RecordDict], _weight_key: str) -> MetricRecord:
        run.trained += sum(int(reply["metrics"]["trained"]) for reply in replies)
        return MetricRecord()

    def end_round(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        if server_round == 0:  # before the first round
            return None
        if run.evaluation_due:
            inputs, labels, _ = tensors(work.setup)
            model = make_model(work)
            model.load_state_dict(arrays.to_torch_state_dict())
            run.loss = mean_loss(model, inputs, labels, work.evaluation_batch)
            run.evaluated += len(labels)
        run.round_ended()
        return None

    @app.main()
    def main(grid: Grid, _context: Context) -> None:
        strategy = FedAvg(
            fraction_train=work.cohort_size / work.num_clients,
            fraction_evaluate=0.0,
            min_available_nodes=work.num_clients,
            train_metrics_aggr_fn=sum_trained,
        )
        initial = ArrayRecord(make_model(work).state_dict())
        strategy.start(grid, initial, num_rounds=run.total_rounds, evaluate_fn=end_round)

    return app


def main() -> None:
    """Train and report."""
    torch.set_num_threads(1)
    run = Measurement.from_arguments(__doc__)
    os.environ["PEERS_SETUP"] = run.work.setup  # Ray's actor inherits it
    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server_app(run),
        client_app,
        num_supernodes=run.work.num_clients,
        backend_config={
            "init_args": {"num_cpus": 1, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
    run.report("flower", version("flwr"))


if __name__ == "__main__":
    main()
