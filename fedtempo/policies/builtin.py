"""The policies that come with fedtempo, one entry each."""

from functools import partial

from fedtempo.policies.ca2fl import CA2FL, CA2FLOptions
from fedtempo.policies.clustered import ClusteredSampling
from fedtempo.policies.entry import DASH_DOT, DASH_DOT_DOT, DOTTED, LONG, SOLID, Entry
from fedtempo.policies.fadas import FADAS, FADASOptions
from fedtempo.policies.fedacg import FedACG, FedACGOptions
from fedtempo.policies.fedasync import FedAsync, FedAsyncOptions
from fedtempo.policies.fedbuff import FedBuff, FedBuffOptions
from fedtempo.policies.fedcs import FedCS, FedCSOptions
from fedtempo.policies.fixed import AuthorsUniform, FixedSampling, FullParticipation, UniformOptions
from fedtempo.policies.kvib import KVib, KVibOptions
from fedtempo.policies.ocs import OCSOptions, OptimalClientSampling
from fedtempo.policies.oort import Oort, OortOptions
from fedtempo.policies.options import NoOptions, read_options
from fedtempo.policies.policy import Policy, PolicySetting
from fedtempo.policies.power_of_choice import PowerOfChoice, PowerOfChoiceOptions
from fedtempo.policies.proposed import OracleOptions, PilotOptions, ProposedOptions, oracle, piloted
from fedtempo.policies.routing import Routing, RoutingOptions
from fedtempo.policies.shadowheart import Shadowheart, ShadowheartOptions
from fedtempo.policies.tempo import Tempo, TempoOptions
from fedtempo.policies.tifl import TiFL, TiFLOptions
from fedtempo.theory.sampling import uniform_sampling, weighted_sampling


def _uniform(setting: PolicySetting) -> Policy:
    if read_options(UniformOptions, setting.options).replacement:
        return FixedSampling(setting.fleet, uniform_sampling(setting.fleet), setting.cohort_size)
    return AuthorsUniform(setting.fleet, setting.cohort_size)


def _weighted(setting: PolicySetting) -> Policy:
    read_options(NoOptions, setting.options)
    return FixedSampling(setting.fleet, weighted_sampling(setting.fleet), setting.cohort_size)


def _full(setting: PolicySetting) -> Policy:
    read_options(NoOptions, setting.options)
    return FullParticipation(setting.fleet)


# The paper's policies and ours have the clearest colours. Most of the rivals' are Paul Tol's, for the colour-blind too.
BUILT_IN: dict[str, Entry] = {
    "uniform": Entry(
        description="every client with the same probability",
        make=_uniform, options=UniformOptions, repeats=True,
        colour="#009E73", dashes=DASH_DOT, marker="triangle-up",
    ),
    "weighted": Entry(
        description="in proportion to the data share",
        make=_weighted, options=NoOptions, repeats=True,
        colour="#E69F00", dashes=LONG, marker="x",
    ),
    "statistical": Entry(
        description="in proportion to data share × gradient bound, after pilots that measure it",
        make=partial(piloted, PilotOptions), options=PilotOptions, needs_pilots=True, repeats=True,
        colour="#CC79A7", dashes=DOTTED, marker="diamond",
    ),
    "full": Entry(
        description="all clients in each round",
        make=_full, options=NoOptions,
        colour="#000000", dashes=LONG, marker="cross",
    ),
    "proposed": Entry(
        description="the paper's scheme: pilots, estimates, exact optimum",
        make=partial(piloted, ProposedOptions), options=ProposedOptions, needs_pilots=True, papers=True, repeats=True,
        colour="#0072B2", dashes=SOLID, marker="circle",
    ),
    "proposed-oracle": Entry(
        description="the same with gradient bounds and β/α known beforehand, no pilots",
        make=oracle, options=OracleOptions, oracle=True, papers=True, repeats=True,
        colour="#56B4E9", dashes=DASH_DOT_DOT, marker="square",
    ),
    "tempo": Entry(
        description="ours: no pilots; learns who has news to report and how long it takes, steps as updates arrive",
        make=Tempo, options=TempoOptions, asynchronous=True, ours=True,
        colour="#D55E00", dashes=SOLID, marker="star",
    ),
    "oort": Entry(
        description="rival: by loss and speed, some exploration (biased)",
        make=Oort, options=OortOptions, biased=True,
        colour="#882255", dashes=LONG, marker="pentagon",
    ),
    "power-of-choice": Entry(
        description="rival: of some candidates those with the highest losses (biased)",
        make=PowerOfChoice, options=PowerOfChoiceOptions, biased=True,
        colour="#999933", dashes=DASH_DOT, marker="hexagon",
    ),
    "fedcs": Entry(
        description="rival: as many as upload before a deadline (biased)",
        make=FedCS, options=FedCSOptions, biased=True,
        colour="#661100", dashes=DOTTED, marker="triangle-down",
    ),
    "tifl": Entry(
        description="rival: from one tier of equally fast clients at a time (biased)",
        make=TiFL, options=TiFLOptions, biased=True,
        colour="#332288", dashes=DASH_DOT_DOT, marker="triangle-left",
    ),
    "ocs": Entry(
        description="rival: all compute, those with large updates upload (unbiased)",
        make=OptimalClientSampling, options=OCSOptions,
        colour="#AA4499", dashes=DASH_DOT, marker="triangle-right",
    ),
    "clustered": Entry(
        description="rival: one from each of K groups of equal data (unbiased)",
        make=ClusteredSampling, options=NoOptions,
        colour="#44AA99", dashes=LONG, marker="hourglass",
    ),
    "kvib": Entry(
        description="rival: learns update norms online (unbiased)",
        make=KVib, options=KVibOptions,
        colour="#CC6677", dashes=DASH_DOT_DOT, marker="bowtie",
    ),
    "fedbuff": Entry(
        description="rival: asynchronous, a step after every K arrivals (nearly unbiased)",
        make=FedBuff, options=FedBuffOptions, asynchronous=True,
        colour="#777777", dashes=SOLID, marker="star-square",
    ),
    "fedasync": Entry(
        description="rival: asynchronous, mixes in each model as it arrives (nearly unbiased)",
        make=FedAsync, options=FedAsyncOptions, asynchronous=True,
        colour="#88CCEE", dashes=LONG, marker="diamond-tall",
    ),
    "ca2fl": Entry(
        description="rival: FedBuff with a memory of each client's last update (nearly unbiased)",
        make=CA2FL, options=CA2FLOptions, asynchronous=True,
        colour="#117733", dashes=DASH_DOT, marker="diamond-wide",
    ),
    "fadas": Entry(
        description="rival: FedBuff with AMSGrad on the server, shorter steps after delays (nearly unbiased)",
        make=FADAS, options=FADASOptions, asynchronous=True,
        colour="#DDCC77", dashes=DOTTED, marker="hexagram",
    ),
    "fedacg": Entry(
        description="rival: weighted sampling; clients start from where the server's momentum leads (unbiased)",
        make=FedACG, options=FedACGOptions, repeats=True,
        colour="#6699CC", dashes=DASH_DOT_DOT, marker="octagon",
    ),
    "shadowheart": Entry(
        description="rival: each computes and sends as much as fits into an equilibrium time (biased)",
        make=Shadowheart, options=ShadowheartOptions, biased=True,
        colour="#997700", dashes=LONG, marker="bowtie-open",
    ),
    "routing": Entry(
        description="rival: asynchronous, a step after every arrival, q by a queueing network (nearly unbiased)",
        make=Routing, options=RoutingOptions, asynchronous=True,
        colour="#994455", dashes=SOLID, marker="star-triangle-up",
    ),
}  # fmt: skip
