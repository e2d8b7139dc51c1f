"""The ServerApp of the ready app: an experiment of a configuration file on Flower nodes, with records as usual."""

from dataclasses import asdict

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from fedtempo.flower.app.assembly import header_of, read_setup
from fedtempo.flower.app.model_arrays import evaluate as evaluate_arrays
from fedtempo.flower.app.model_arrays import pack
from fedtempo.flower.strategy.tempo_strategy import TempoStrategy
from fedtempo.learning.threads import one_thread

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run it."""
    setup = read_setup(context.run_config)
    config, problem, stop = setup.config, setup.problem, setup.experiment.stop

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        with one_thread():
            found = evaluate_arrays(problem.trainer, arrays)
        return MetricRecord({"loss": found.loss, "accuracy": found.accuracy})

    strategy = TempoStrategy(
        config.policy,
        options=setup.options,
        fleet=problem.fleet,
        nodes=config.client_of_node(),
        clock=config.clock,
        uplink=config.uplink(),
        deadline=config.deadline,
        target_loss=stop.target_loss,
        target_accuracy=stop.target_accuracy,
        max_time=stop.max_time,
        seed=config.seed,
        records=config.records or None,
        header=header_of(setup),
        **asdict(setup.training),
    )
    strategy.start(
        grid=grid,
        initial_arrays=pack(
            problem.initial_model(config.seed), config.ballast, buffers=problem.initial_buffers(config.seed)
        ),
        num_rounds=config.rounds,
        evaluate_fn=evaluate,
    )
