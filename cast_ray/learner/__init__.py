"""The learner: logprobs and updates with DeepSpeed, one actor per rank."""
