"""The ClientApp of flower_bench.py, in its own module: Ray's actor cannot unpickle what the main script defines."""

import functools
import os

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn import functional
from torch_models import make_model
from work import WORKS, make_data


@functools.cache
def tensors(setup: str) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Return inputs, labels and offsets, made once in each process."""
    inputs, labels, offsets = make_data(setup)
    return torch.from_numpy(inputs), torch.from_numpy(labels), offsets.tolist()


client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Do one client's E local steps."""
    torch.set_num_threads(1)
    work = WORKS[os.environ["PEERS_SETUP"]]
    inputs, labels, offsets = tensors(work.setup)
    client = context.node_config["partition-id"]
    start, end = offsets[client], offsets[client + 1]
    model = make_model(work)
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=work.learning_rate)
    trained = 0
    for _ in range(work.local_steps):
        batch = torch.randint(start, end, (work.batch_size,))
        optimizer.zero_grad()
        functional.cross_entropy(model(inputs[batch]), labels[batch]).backward()
        optimizer.step()
        trained += len(batch)
    metrics = MetricRecord({"num-examples": end - start, "trained": trained})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
