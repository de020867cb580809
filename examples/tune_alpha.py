"""Search for alpha and the learning rate with Ray Tune; ASHA stops what lags behind.

python examples/tune_alpha.py
"""

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from cast_ray import Algorithm, AlgorithmConfig

config = (
    AlgorithmConfig("cast")
    .environment("sokoban", tier="mini")
    .training(alpha=tune.grid_search([0.1, 0.3, 1.0]), lr=tune.grid_search([1e-4, 3e-4]), steps=4)
    .evaluation(evaluation_interval=0)
)
ray.init(num_cpus=6)  # what one trial's parts reserve; they take turns, so two cores are enough
tuner = tune.Tuner(
    Algorithm,
    param_space=config.to_dict(),
    tune_config=tune.TuneConfig(
        metric="env_runners/episode_return_mean",
        mode="max",
        max_concurrent_trials=1,
        scheduler=ASHAScheduler(max_t=4, grace_period=2),
    ),
)
found = tuner.fit().get_dataframe()
columns = ["config/advantage/alpha", "config/learner/lr", "training_iteration"]
print(found[[*columns, "env_runners/episode_return_mean"]].to_string())
