"""What the server does: start a strategy."""

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp

from fedtempo.flower import TempoStrategy
from quickstart.task import make_model

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for some rounds."""
    settings = context.run_config
    strategy = TempoStrategy("tempo", cohort_size=4, local_steps=settings["local-steps"], evaluate="clients")
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(make_model().state_dict()),
        num_rounds=settings["num-server-rounds"],
        train_config=ConfigRecord({"lr": settings["learning-rate"]}),
    )
    print(f"trained {len(result.arrays)} arrays")
