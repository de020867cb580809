"""Search for alpha and the learning rate with Ray Tune.

python examples/tune_alpha.py        ASHA: six trials, of which those that lag behind are stopped
python examples/tune_alpha.py pbt    a population of two: the worse copies the better and varies it
"""

import sys

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler, PopulationBasedTraining

from cast_ray import Algorithm, AlgorithmConfig

STEPS = 4
METRIC = "env_runners/episode_return_mean"
is_population = sys.argv[1:] == ["pbt"]

config = (
    AlgorithmConfig("cast")
    .environment("sokoban", tier="mini")
    .training(alpha=tune.grid_search([0.1, 0.3, 1.0]), lr=tune.grid_search([3e-4, 1e-4]))
    .training(steps=STEPS)
    .evaluation(evaluation_interval=0)
)
scheduler = ASHAScheduler(max_t=STEPS, grace_period=2, reduction_factor=2)
if is_population:
    config.training(alpha=tune.grid_search([0.1, 1.0]), lr=1e-4)
    scheduler = PopulationBasedTraining(
        perturbation_interval=2,
        hyperparam_mutations={
            "advantage": {"alpha": [0.1, 0.3, 1.0]},
            "learner": {"lr": [1e-4, 3e-4]},
        },
    )
at_once = 2 if is_population else 1
ray.init(num_cpus=5 * at_once)  # what a trial's parts reserve; they take turns on two cores
tuner = tune.Tuner(
    Algorithm,
    param_space=config.to_dict(),
    tune_config=tune.TuneConfig(
        metric=METRIC, mode="max", scheduler=scheduler, max_concurrent_trials=at_once
    ),
)
found = tuner.fit().get_dataframe()
columns = ["config/advantage/alpha", "config/learner/lr", "training_iteration", METRIC]
print(found[columns].to_string())
