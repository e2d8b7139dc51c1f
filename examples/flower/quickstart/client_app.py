"""What a node does: train, and evaluate."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from fedtempo.flower import tempo_client
from quickstart.task import load_data, make_model, test, train

app = ClientApp(mods=[tempo_client(lambda context: len(load_data(int(context.node_config["partition-id"]))[1]))])


@app.train()
def train_one_round(message: Message, context: Context) -> Message:
    """Train the model that came, and send it back."""
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data = load_data(int(context.node_config["partition-id"]))
    loss = train(model, data, steps=context.run_config["local-steps"], lr=message.content["config"]["lr"])
    content = {
        "arrays": ArrayRecord(model.state_dict()),
        "metrics": MetricRecord({"train-loss": loss, "num-examples": len(data[1])}),
    }
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Evaluate the model that came on this node's data."""
    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    data = load_data(int(context.node_config["partition-id"]))
    loss, accuracy = test(model, data)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(data[1])})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
