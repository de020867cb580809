#!/usr/bin/env bash
# Records the runs of `cast-ray view --demo` in serve/demo, about ten minutes: one small run of each
# game, without models and checkpoints, with the episodes of three steps. Usage: make demo
set -euo pipefail
demo=$PWD/serve/demo
made=$(mktemp -d)
cd "$made"  # so that the stored configurations have no path of this machine
for game in sokoban minesweeper rush_hour; do
  cast-ray train game=$game run_dir=$game steps=12 rollout.puzzles_per_step=4 \
    puzzles.num_train=64 puzzles.num_validation=16 puzzles.num_held_out=32 evaluation.every=3
  rm -rf "${demo:?}/$game"
  mkdir -p "$demo/$game"
  (cd $game && cp -r --parents config.yaml metrics.parquet validation.parquet summary.json \
    trajectories/step-000{01,06,12}.parquet "$demo/$game")
done
rm -rf "$made"
du -sh "$demo"
