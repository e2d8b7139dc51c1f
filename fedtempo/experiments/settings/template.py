"""The configuration that `fedtempo init` writes."""

TEMPLATE = """\
# An experiment for fedtempo. Run it: fedtempo run THIS_FILE --policy weighted --seed 0
name = "My experiment"

[data]
kind = "synthetic" # or "mnist", "emnist", "fashion-mnist", "cifar10", "shakespeare" (fedtempo fetch mnist downloads it)
# kind = "arrays" # your own: file = "data.npz" with inputs and labels, or a function, kind = "my_module:function"
clients = 100
samples = 20509
seed = 0 # of the draw and of the split among clients
alpha = 1.0 # synthetic: moves all logits of a client alike, so no label depends on it
beta = 1.0 # synthetic: how much the clients' inputs differ
# split = "classes" # mnist, emnist, your own: "classes", "dirichlet", "iid" or "quantity"; fedtempo split shows it
# classes = [1, 6] # of one client, at least and at most
# concentration = 0.5 # of the Dirichlet split

[model]
kind = "softmax" # or "lenet5", for images of 28 × 28; "cnn", "lstm" (docs/simulation.md)

[times] # of the clients, in seconds; kinds: constant, uniform, exponential, lognormal
compute = { kind = "exponential", mean = 1.0 } # for all local steps of a round
upload = { kind = "exponential", mean = 1.0 } # alone on the link
# uplink_mbps = { kind = "lognormal", median = 10.0, sigma = 1.0 } # instead of upload: the model's bits at this rate
# download = { kind = "constant", value = 0.1 }
seed = 0

[channel]
kind = "static" # or "fading", or "traces" with files that hold rates
# correlation = 0.9 # fading: from one round to the next
# traces = ["lte.up"] # beside this file: Mahimahi, or .csv with columns time and mbps; leave out upload then
# present_share = 0.9 # of the rounds in which a client is available
# times_known = false # policies do not know the times of a round before it, only nominal and measured ones

[training]
cohort_size = 5 # clients drawn a round
local_steps = 50
batch_size = 24
step_size = "auto" # found at the start by a few quick clients, which takes a second or two; or a number, such as 0.005
schedule = "constant" # or "inverse": step_size/(1 + round), which favours policies with long rounds
upload_bits = "auto" # of a number in an upload; 32: as it is. docs/levers.md has what else can be set
server_average = "auto" # a running mean of models is evaluated and returned; 0: the last model
link = "shared" # "paper": all finish together; "equal": equal shares; "shared": whoever is ready
duplicates = "physical" # a client drawn twice uploads once; "paper" counts it twice
evaluate_growth = 0.05 # the loss is looked at whenever the time has grown by this share, however long rounds are
# evaluate_every = 1 # instead: rounds
# weight_decay = 0.0
# clip_norm = 1.0 # the longest gradient that a local step follows
# local_schedule = "cosine" # of the step size over the local steps of a round; or "linear"
# proximal = 0.01 # FedProx: keeps clients near the model that they started from
# server_momentum = 0.0

[stop]
target_loss = 1.0
max_time = 2000.0 # simulated seconds
# max_rounds = 500
# target_accuracy = 0.7

[policy.proposed] # losses to which the pilots run: with another target_loss choose others, none below it
losses = [1.2, 1.15, 1.1, 1.05, 1.0]

[policy.statistical]
losses = [1.2, 1.15, 1.1, 1.05, 1.0]

[policy.proposed-oracle]
beta_over_alpha = 10.0

# [policy.uniform.training] # a policy may train with settings of its own
# step_size = 0.05
"""
