"""The paper's Algorithm 2 with CVXPY: the reference that the exact optimum is compared with."""

import warnings

import numpy as np

from fedtempo.checks import MissingDependencyError, Vector, check_count, check_nonnegative
from fedtempo.fleet import Fleet
from fedtempo.theory.convergence import total_time_objective
from fedtempo.theory.round_time import round_cost


def line_search_sampling(fleet: Fleet, *, cohort_size: int, beta_over_alpha: float, num_values: int = 50) -> Vector:
    """Fix M = Σ q c, solve the convex P4 for q, and keep the best of ``num_values`` values of M (Algorithm 2).

    P4 is compiled once with M as a parameter. The ends of [min c, max c] are left out: there some q would be 0.
    Values of M for which the solver fails are passed over; if it fails for all, this raises ``ArithmeticError``.
    """
    try:
        import cvxpy
    except ImportError:
        raise MissingDependencyError("cvxpy", "the paper's line search") from None
    ratio = check_nonnegative("beta_over_alpha", beta_over_alpha)
    cost, importance = round_cost(fleet, cohort_size=cohort_size), fleet.importance
    importance /= importance.sum()
    unit = cost.mean()
    q = cvxpy.Variable(len(fleet), pos=True)
    mean_cost = cvxpy.Parameter(pos=True)
    rules = [cvxpy.sum(q) == 1]
    values = np.linspace(cost.min(), cost.max(), check_count("num_values", num_values) + 2)[1:-1]
    if np.ptp(cost) > 0:
        rules.append(cost / unit @ q == mean_cost)
    else:
        values = values[:1]  # Σ q c is the same for every q
    problem = cvxpy.Problem(cvxpy.Minimize(importance**2 @ cvxpy.inv_pos(q)), rules)

    best, least = None, np.inf
    for value in values:
        mean_cost.value = value / unit
        with warnings.catch_warnings(action="ignore"):  # of inaccurate solutions: each is judged by its own objective
            try:
                problem.solve(solver=cvxpy.CLARABEL)
            except cvxpy.error.SolverError:
                continue
        if q.value is None or not np.all(q.value > 0):
            continue
        found = q.value / q.value.sum()
        time = total_time_objective(fleet, found, cohort_size=cohort_size, beta_over_alpha=ratio)
        if time < least:
            best, least = found, time
    if best is None:
        raise ArithmeticError(f"the solver found no solution of P4 for any of {len(values)} values of M")
    return np.asarray(best)
