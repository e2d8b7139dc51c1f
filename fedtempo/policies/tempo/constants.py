"""Every constant of tempo: what it counts, what it does, and in brackets the page of docs/decisions with its evidence.

Nothing is tuned elsewhere. Modules read a constant here at the moment they need it, so that benchmarks/constants.py can
compare others. m is the server's momentum: each direction goes on for 1/(1 - m) steps, and a memory that lags makes the
model swing, so steps take more arrivals then, weights are cut later, and more draws go by data share.
"""

import math

# How many updates a step takes, and who computes meanwhile.
ARRIVALS = 0.8  # updates of a step without momentum, once all data were reported; times 1/(1 - m), rounded up [10]
ARRIVALS_FOR_UNSEEN_DATA = 2.0  # times as many more while no data were reported yet [10]
NOISE_OF_AN_UPDATE = 3.0  # ν, squared, over the squared way of a step: LeNet-5 took 54 steps of 4, 40 of 11 [25]
SMALL_COHORT = 4  # updates of a mean at least, where the memory is not followed [12]
LINK_BUSY = 0.95  # share of the time that as many are in flight for [20]
MOST_IN_FLIGHT = 1 / 4  # of the fleet: who is in flight cannot be drawn [20]
MOST_PLACES = 1000  # in flight, however large the fleet is: mean value analysis goes through all of them
STALE = math.pi / 4  # steps that updates of a mean may be stale: half of where a fixed delay makes steps unstable [20]
OVERDUE = 2.0  # times the longest computing and the longest uploads that may be in flight: no longer waited for [17]
MISSED_BY_THE_GONE = 3.0  # draws, or failures in a row, after which a client may have left for good [17]

# Whom to draw, and with what weight.
LARGEST_FACTOR = 4.0  # bound of a weight, in units of p_i/(1 - m) [16]
FLOOR = 0.1  # share of the draws that goes by data share, without momentum, where the memory holds [10, 16, 21]
FLOOR_WITH_MOMENTUM = 0.5  # times m more of them with it [10]
SIGNAL_FACTOR_OF_STEPS = 0.1  # of K ‖d‖² in C of P3 [16]
SIGNAL_FACTOR_OF_ROUNDS = 16.0  # the same of synchronous rounds, chosen by experiment [10]
ROUND_FLOOR = 0.04  # least π in a synchronous round, in units of N p_i floor [10]

# When the memory is followed, and how carefully. Caution multiplies the arrivals of a step and divides the clients that
# compute ahead: the greatest is nearly a synchronous round. It rises 1 + m and falls 1 - m times as fast.
GREATEST_SURPRISE = 0.6  # new share of a squared norm, above which caution rises [10]
CAUTION_GAIN = 0.1  # exponent of surprise/GREATEST_SURPRISE for each step [10]
SURPRISE_TO_FOLLOW = 0.7  # below this the memory is followed, if there is no doubt [12]
DOUBT = 0.5  # less than that for each unit of doubt [12, 16]

# How long steps are. Directions that turn back on those before show steps that are too long.
SHORTEN = 0.3  # log of the step's factor, for each step and unit of agreement below 0 [13]
LENGTHEN = 0.1  # the same above 0, times 1 - m [13]
SHORTEST = 0.1  # of the engine's step size [13]
LEAST_HOLDING = 0.01  # of a step along the memory: with less, nobody would learn that it holds again [21]

# What is new in an update.
AGE = 20.0  # steps of full length after which a residual is twice what it was at once: noise comes first [10, 16]
LEAST_DRIFT = 0.01  # of a direction's squared norm, where rounding seems to be all that was new [20]
SIGNAL_OF_THE_PAST = 0.9  # share of the past in the running mean of ‖d‖² [10]
LEAST_SIGNAL = 0.1  # of a step's squared norm, where noise seems to be all of it [10]

# Costs of clients in synchronous rounds.
COST_OF_THE_PAST = 0.9  # share of the past in the running means of what clients add to a round [10]
LEAST_COST = 1e-3  # of a client's own seconds: one that others hide is cheap, but not free [10]

# How many local steps, where tempo chooses them.
PATHS_OF_THE_PAST = 0.95  # share of the past in the running means, for each update [11]
FEWEST_STEPS = 2  # one step shows nothing of how a path bends [11]
MOST_STEPS = 10.0  # times the usual number [11]
SHORTEST_PATH = 1 / 3  # of the usual local steps: noise of batches bends paths too, and fewer steps gain nothing [25]
FEWER_STEPS = 2**0.5  # times fewer, from one number of local steps of a mean to the next that is looked at [25]

# What deciding may cost (benchmarks/overhead.md). A step changes little in a large fleet.
CLIENTS_FOR_A_STEP = 100  # q is solved for once in N/100 steps
MOST_STEPS_WITH_ONE_Q = 64  # but at least once in so many
LARGE_FLEET_IN_TURN = 10_000  # clients, above which draws in turn look at those near their turn alone
LARGE_FLEET_BY_CHANCE = 500  # clients, above which draws by chance look at the likely ones alone

# Numerics.
ROUNDING = 1e-9
TINY = 1e-30  # squared norm that counts as zero
