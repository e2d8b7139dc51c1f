"""pfl (apple/pfl-research): FederatedAveraging on SimulatedBackend with central evaluation.

pfl ends local training with the client's data, however many steps were asked for, so that its clients here yield E
batches by index, whatever the size of their data. It also evaluates each client of its first round before and after
training, which cannot be turned off: that round falls into the warm-up.
"""

from collections.abc import Iterator
from importlib.metadata import version
from itertools import pairwise

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, StringMetricName, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn
from torch.nn import functional
from torch_models import make_model
from work import Measurement, make_data

LOSS = StringMetricName("Central val | loss")


class Client(PyTorchTensorDataset):
    """One client's data in E random batches."""

    def iter(self, batch_size: int | None) -> Iterator[list[torch.Tensor]]:
        """Yield batches of inputs and labels."""
        inputs, labels = self.raw_data
        for _ in range(self.metadata["local_steps"]):
            batch = torch.randint(len(labels), (batch_size,))
            yield [inputs[batch], labels[batch]]


class Classifier(nn.Module):
    """The model with the two methods that pfl wants."""

    def __init__(self, run: Measurement) -> None:
        """Wrap the model of the setup."""
        super().__init__()
        self.network = make_model(run.work)
        self.run = run

    def loss(self, inputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the loss of one training batch."""
        self.run.trained += len(labels)
        return functional.cross_entropy(self.network(inputs), labels)

    @torch.inference_mode()
    def metrics(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, Weighted]:
        """Return the loss of one evaluation batch."""
        self.run.evaluated += len(labels)
        total = functional.cross_entropy(self.network(inputs), labels, reduction="sum").item()
        return {"loss": Weighted(total, len(labels))}


class RoundClock(TrainingProcessCallback):
    """Notes the end of each round; stands last among the callbacks, after the evaluation."""

    def __init__(self, run: Measurement) -> None:
        """Keep the measurement."""
        self.run = run

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        """Take the loss, where this round has one."""
        if LOSS in aggregate_metrics:
            self.run.loss = aggregate_metrics[LOSS].overall_value
        self.run.round_ended()
        return False, Metrics()


def main() -> None:
    """Train and report."""
    torch.set_num_threads(1)
    np.random.seed(0)  # noqa: NPY002 - pfl draws its clients from the global generator
    run = Measurement.from_arguments(__doc__)
    work = run.work
    inputs, labels, offsets = make_data(work.setup)
    tensors = torch.from_numpy(inputs), torch.from_numpy(labels)
    clients = [
        Client(tuple(tensor[start:end] for tensor in tensors), metadata={"local_steps": work.local_steps})
        for start, end in pairwise(offsets)
    ]
    federation = FederatedDataset(clients.__getitem__, get_user_sampler("random", range(work.num_clients)))

    network = Classifier(run)
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    evaluation = CentralEvaluationCallback(
        PyTorchTensorDataset(tensors),
        model_eval_params=NNEvalHyperParams(local_batch_size=work.evaluation_batch),
        frequency=run.evaluate_every,
    )
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=run.total_rounds,
            evaluation_frequency=run.total_rounds + 1,
            train_cohort_size=work.cohort_size,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(federation, federation, postprocessors=[WeightByDatapoints()]),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=work.local_steps,
            local_batch_size=work.batch_size,
            local_learning_rate=work.learning_rate,
        ),
        callbacks=[evaluation, RoundClock(run)],
        send_metrics_to_platform=False,  # it would print them
    )
    run.report("pfl", version("pfl"))


if __name__ == "__main__":
    main()
