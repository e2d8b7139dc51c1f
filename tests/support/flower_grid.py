"""A Flower grid in this process: a real ClientApp answers each message, with the state of its node."""

import time
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class InProcessGrid(Grid):
    def __init__(self, app, node_configs, run_config=None):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # an engine would have set them
        self.app = app
        self.contexts = {}
        for number, node_config in enumerate(node_configs):
            node = 1000 + 7 * number
            self.contexts[node] = Context(1, node, dict(node_config), RecordDict(), dict(run_config or {}))
        self.online = set(self.contexts)
        self.replies, self.sent, self.silent = {}, [], set()  # silent nodes never answer
        self.delay = 0.0  # s until an answer is there

    def set_run(self, run):
        pass

    @property
    def run(self):
        raise NotImplementedError

    def create_message(self, *arguments, **settings):
        raise NotImplementedError

    def get_node_ids(self):
        return list(self.online)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            ids.append(message.metadata.message_id)
            self.sent.append(message)
            node = message.metadata.dst_node_id
            if node not in self.silent:
                self.replies[ids[-1]] = time.monotonic() + self.delay, self.answer(message, self.contexts[node])
        return ids

    def answer(self, message, context):
        try:
            return self.app(message, context)
        except Exception as error:
            return Message(Error(0, repr(error)), reply_to=message)

    def pull_messages(self, message_ids):
        there = [name for name in message_ids if name in self.replies and self.replies[name][0] <= time.monotonic()]
        return [self.replies.pop(name)[1] for name in there]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))
