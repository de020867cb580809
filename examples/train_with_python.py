"""Train from Python: the run of `cast-ray train` with the same values, step by step.

python examples/train_with_python.py
"""

from cast_ray import AlgorithmConfig

config = (
    AlgorithmConfig("cast")
    .environment("sokoban", tier="mini")
    .engines(num_engines=1)
    .training(alpha=0.3, lr=2e-4, group_size=8, steps=3)
    .checkpointing(run_dir="runs/from-python")
)
with config.build_algo() as algo:
    for _ in range(3):
        result = algo.train()
        print(result["training_iteration"], result["env_runners"]["episode_return_mean"])
    print(algo.evaluate()["env_runners"], algo.save_to_path("runs/from-python-checkpoint"))
