"""What the strategy and its clients say to each other."""

ARRAYS, CONFIG = "arrays", "config"  # records of a message, named as Flower's own strategies name them
MEASURED = "fedtempo"  # record of a reply: what the client measured
NUM_EXAMPLES = "num-examples"  # how many they were: nothing to average
MEASURED_NAMES = (NUM_EXAMPLES, "compute-seconds", "largest-gradient-norm", "mean-gradient-norm", "update-norm")
KEPT = "fedtempo-kept"  # record of a client's state: the model of its last local steps
# In the config of a message: what is asked beyond training.
ASK = "fedtempo-ask"
DESCRIBE, KEEP, FETCH = "describe", "keep", "fetch"
# And how to train.
ROUND, STEPS, STEP_SIZE, BANDWIDTH = "server-round", "local-steps", "lr", "bandwidth"
ROUND_INDEX, CLIENT = "round-index", "client"
COHORT, COHORT_SIZE = "cohort", "cohort-size"  # a name that those who are asked at once share, and how many they are
