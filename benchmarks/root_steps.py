"""Count the evaluations that each root of `optimal_sampling` takes, over 10,000 wide-ranging fleets."""

import numpy as np

from fedtempo import Fleet, optimal_sampling
from fedtempo.theory import optimum, roots


def main() -> None:
    """Print the mean and the largest number of evaluations."""
    counts = []

    def counting_root(evaluate, *bracket, power):
        counts.append(0)

        def counted(x):
            counts[-1] += 1
            return evaluate(x)

        return roots.root(counted, *bracket, power=power)

    optimum.root = counting_root
    rng = np.random.default_rng(1)
    for _ in range(10_000):
        size = int(rng.integers(1, 201))
        share, norm, compute, upload = 10 ** rng.uniform(-4, 4, (4, size))
        ratio = 0.0 if rng.random() < 0.1 else 10 ** rng.uniform(-6, 6)
        fleet = Fleet(share / share.sum(), norm, compute * (rng.random(size) > 0.1), upload)
        optimal_sampling(fleet, cohort_size=int(rng.integers(1, 20)), beta_over_alpha=ratio)
    print(f"evaluations a root: {np.mean(counts):.2f} in the mean, {max(counts)} at most, over {len(counts):,} fleets")


if __name__ == "__main__":
    main()
