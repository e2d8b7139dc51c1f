"""FedJAX: its federated averaging with the jit backend, the fastest it has for one CPU device."""

import os
from collections.abc import Mapping
from importlib.metadata import version
from itertools import pairwise

import fedjax
import haiku as hk
import jax
import numpy as np
from fedjax.algorithms import fed_avg
from work import Measurement, make_data

jax.tree_map = jax.tree_util.tree_map  # current JAX has dropped the name that FedJAX 0.0.17 calls

Batch = Mapping[str, jax.Array]


def softmax_regression(batch: Batch) -> jax.Array:
    """Return the scores of ten classes."""
    return hk.Linear(10, w_init=hk.initializers.Constant(0.0))(batch["x"])


def lenet5(batch: Batch) -> jax.Array:
    """Return the scores of ten classes; the channel comes last, as haiku and XLA on a CPU prefer it."""
    network = hk.Sequential(
        [
            *(hk.Conv2D(6, 5, padding="SAME"), jax.nn.relu, hk.MaxPool(2, 2, "VALID", channel_axis=-1)),
            *(hk.Conv2D(16, 5, padding="VALID"), jax.nn.relu, hk.MaxPool(2, 2, "VALID", channel_axis=-1)),
            *(hk.Flatten(), hk.Linear(120), jax.nn.relu, hk.Linear(84), jax.nn.relu, hk.Linear(10)),
        ]
    )
    return network(batch["x"])


def cnn(batch: Batch) -> jax.Array:
    """Return the scores of ten classes by the network of configs/cifar10.toml."""
    layers = []
    for channels in (16, 32, 64):
        layers += [hk.Conv2D(channels, 3, padding="SAME", with_bias=False), hk.MaxPool(2, 2, "VALID", channel_axis=-1)]
        layers += [hk.GroupNorm(channels // 8), jax.nn.relu]
    return hk.Sequential([*layers, hk.Flatten(), hk.Linear(128), jax.nn.relu, hk.Linear(10)])(batch["x"])


FORWARD = {"softmax": softmax_regression, "lenet5": lenet5, "cnn": cnn}


def main() -> None:
    """Train and report."""
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    jax.config.update("jax_cpu_enable_async_dispatch", False)  # a fifth faster in setup 2 on one core
    run = Measurement.from_arguments(__doc__)
    work = run.work
    inputs, labels, offsets = make_data(work.setup)
    forward = FORWARD[work.network]
    if len(work.input_shape) == 3:
        inputs = np.moveaxis(inputs, 1, -1)

    def count(batch: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        run.trained += len(batch["y"])
        return batch

    clients = enumerate(pairwise(offsets))
    federation = fedjax.InMemoryFederatedData(
        {client: {"x": inputs[start:end], "y": labels[start:end]} for client, (start, end) in clients}
    ).preprocess_batch(count)
    model = fedjax.create_model_from_haiku(
        hk.transform(forward),
        sample_batch={"x": inputs[:1], "y": labels[:1]},
        train_loss=lambda batch, scores: fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], scores),
    )
    averaging = fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(work.learning_rate),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(
            work.batch_size, num_epochs=None, num_steps=work.local_steps
        ),
    )
    everything = fedjax.ClientDataset({"x": inputs, "y": labels})
    evaluation_batches = jax.device_put(list(everything.padded_batch(batch_size=work.evaluation_batch)))
    per_example_loss = fedjax.model_per_example_loss(model)
    key = jax.random.PRNGKey(0)

    def mean_loss(params: fedjax.Params) -> float:
        return float(fedjax.evaluate_average_loss(params, evaluation_batches, key, per_example_loss))

    sampler = fedjax.client_samplers.UniformGetClientSampler(federation, work.cohort_size, seed=0)
    state = averaging.init(model.init(key))
    mean_loss(state.params)  # compiles: the first evaluation may come after the warm-up
    for _ in range(run.total_rounds):
        state, _ = averaging.apply(state, sampler.sample())
        if run.evaluation_due:
            run.loss = mean_loss(state.params)
            run.evaluated += len(labels)
        jax.block_until_ready(state.params)
        run.round_ended()
    run.report("fedjax", f"{version('fedjax')} on jax {jax.__version__}")


if __name__ == "__main__":
    main()
