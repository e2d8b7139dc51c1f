"""FedACG: clients start from where the server's momentum leads.

G. Kim, J. Kim, B. Han, "Communication-Efficient Federated Learning with Accelerated Client Gradient", CVPR 2024. In
each round the members start from w + λ m instead of w, and with the mean Δ of their updates from there

    m ← λ m + Δ,      w ← w + m,

so that the momentum's part of the step is made before clients compute their gradients, as in Nesterov's method. λ =
0.85.

Departures from the paper. Members are K draws by data share with replacement, where the paper draws some of equal data.
The momentum keeps directions Δ/η, the same where η is constant. The local term β/2 ‖w_i - (w + λ m)‖² is ``proximal``
of the settings of training, 0 unless set; with the paper's β = 0.01 it shortens E steps of η by ηβE/2 of their length.
Where ``server_optimiser`` is another than sgd, λ is its β₁, and clients start from where its next step would lead if
all new updates were 0.
"""

from dataclasses import dataclass

from fedtempo.checks import InputError, check_fraction
from fedtempo.policies.fixed import FixedSampling
from fedtempo.policies.options import read_options
from fedtempo.policies.policy import PolicySetting
from fedtempo.theory.sampling import weighted_sampling

MOMENTUM = 0.85  # λ of the paper


@dataclass(frozen=True, kw_only=True, slots=True)
class FedACGOptions:
    """Of ``fedacg``."""

    momentum: float | None = None  # λ; None: server_momentum of the settings of training, or 0.85 where that is 0

    def __post_init__(self) -> None:
        """Check the options."""
        if self.momentum is not None and check_fraction("momentum", self.momentum) == 1:
            raise InputError("momentum", "be below 1", "1", "old steps would never fade")


class FedACG(FixedSampling):
    """Weighted sampling with server momentum, of which clients know."""

    server_lookahead = True

    def __init__(self, setting: PolicySetting) -> None:
        """Read the options."""
        options = read_options(FedACGOptions, setting.options)
        super().__init__(setting.fleet, weighted_sampling(setting.fleet), setting.cohort_size)
        usual = setting.server_momentum or MOMENTUM
        self.server_momentum = usual if options.momentum is None else float(options.momentum)
