"""Guess a number: told after each guess whether it is too low or too high."""

import random
import re

from cast_ray.envs.tasks import Step, TextEnvironment

LARGEST = 20


class GuessNumber(TextEnvironment):
    """A guess earns the share of the numbers that it rules out; the right one earns the rest."""

    rules = (
        f"Find a number from 1 to {LARGEST}. Each turn, end with your guess between two fences of "
        "three backticks, for example ```7```."
    )
    turn_budget = 6

    def reset(self, task: int) -> str:
        """Choose the number of a task."""
        self.number = random.Random(task).randint(1, LARGEST)
        self.low, self.high, self.earned = 1, LARGEST, 0.0
        return "Your first guess?"

    def step(self, answer: str) -> Step:
        """Compare a guess."""
        found = re.search(r"```\s*(\d{1,3})\s*```", answer)
        if found is None or not 1 <= int(found[1]) <= LARGEST:
            return Step(observation=f"Guess from 1 to {LARGEST}.", is_valid=False)
        guess = int(found[1])
        if guess == self.number:
            return Step(observation="Right.", reward=1 - self.earned, done=True)
        left = self.high - self.low
        if guess < self.number:
            self.low = max(self.low, guess + 1)
        else:
            self.high = min(self.high, guess - 1)
        reward = 0.5 * (left - (self.high - self.low)) / LARGEST
        self.earned += reward
        return Step(observation="Higher." if guess < self.number else "Lower.", reward=reward)

    def choices(self) -> tuple[str, ...]:
        """Return all guesses that are still possible."""
        return tuple(str(number) for number in range(self.low, self.high + 1))
