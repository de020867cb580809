"""What the rules and the generator of a game must satisfy."""

from __future__ import annotations

from itertools import pairwise

from cast_ray.games.game import Effect, Game, Transition
from cast_ray.games.testing.samples import Samples, State, demand, shown


def check_declaration(samples: Samples) -> None:
    """Name, rules and tiers are there, and every tier can be played."""
    game = samples.game
    demand(isinstance(game, Game), "the game is not derived from cast_ray.games.game.Game")
    demand(game.name.isidentifier(), f"name is {game.name!r}: use letters, digits and _")
    demand(game.rules.strip(), "rules is empty: it is the system prompt")
    demand(game.tiers, "tiers is empty: give at least one tier")
    for name, tier in game.tiers.items():
        demand(tier.name == name, f"tiers[{name!r}] has the name {tier.name!r}: use one of them")
        demand(tier.turn_budget >= 1, f"tier {name}: turn_budget is {tier.turn_budget}, below 1")
        demand(
            1 <= tier.min_cost <= tier.max_cost <= tier.turn_budget,
            f"tier {name}: costs from {tier.min_cost} to {tier.max_cost} do not lie between 1 and "
            f"the turn budget of {tier.turn_budget}",
        )


def check_generation(samples: Samples) -> None:
    """The same random numbers give the same puzzle, other ones another; puzzles are open."""
    game = samples.game
    for tier in game.tiers.values():
        numbers = samples.puzzle_numbers
        first = [samples.puzzle(tier, number) for number in numbers]
        again = [samples.puzzle(tier, number) for number in reversed(numbers)][::-1]
        for number, puzzle in enumerate(first):
            demand(
                puzzle == again[number],
                f"tier {tier.name}: the generator gave {shown(game.encode(puzzle))} and then, from "
                f"the same random numbers, {shown(game.encode(again[number]))}",
            )
            demand(
                samples.is_open(puzzle),
                f"tier {tier.name}: the puzzle {shown(game.encode(puzzle))} is already "
                f"{game.status(puzzle)}",
            )
        demand(
            len(first) < 2 or len({game.canonical(puzzle) for puzzle in first}) > 1,
            f"tier {tier.name}: {len(first)} puzzles from other random numbers are all the same",
        )


def check_pure_rules(samples: Samples) -> None:
    """States are hashable; ``apply`` leaves its state as it was and depends on nothing else."""
    game = samples.game
    for state in samples.open_states:
        text, twin = game.encode(state), game.decode(game.encode(state))
        demand(hash(state) == hash(twin), f"equal states of {shown(text)} have different hashes")
        for action in game.actions(state):
            first = game.apply(state, action)
            demand(
                game.encode(state) == text and state == twin,
                f"apply({action!r}) changed the state it was given: {shown(text)} is now "
                f"{shown(game.encode(state))}; return a new one",
            )
            for again in (game.apply(state, action), game.apply(twin, action)):
                demand(
                    (again.state, again.effect, again.feedback)
                    == (first.state, first.effect, first.feedback),
                    f"apply({action!r}) on equal states of {shown(text)} gave two results: "
                    f"{shown(game.encode(first.state))} and {shown(game.encode(again.state))}",
                )


def check_effects(samples: Samples) -> None:
    """An action either changes the state in silence, or returns the same object with feedback."""
    game = samples.game
    for state in samples.open_states:
        for action in game.actions(state):
            demand_contract(samples, state, action, game.apply(state, action))


def demand_contract(
    samples: Samples, state: State, action: str, transition: Transition[State]
) -> None:
    """Raise AssertionError unless effect, state and feedback of a transition belong together."""
    place = f"apply({action!r}) on {shown(samples.game.encode(state))}"
    effect, feedback = transition.effect, transition.feedback
    if effect is Effect.CHANGED:
        demand(transition.state != state, f"{place} says changed, and the state is equal")
        demand(not feedback, f"{place} changed the state and yet says {feedback!r}")
        return
    demand(
        effect in (Effect.INEFFECTIVE, Effect.ILLEGAL, Effect.INVALID),
        f"{place} has the effect {effect!r}: use changed, ineffective, illegal or invalid",
    )
    demand(transition.state is state, f"{place} is {effect}: return the same state object")
    demand(
        feedback.strip() and "\n" not in feedback,
        f"{place} is {effect}, with the feedback {feedback!r}: say in one line what was wrong",
    )


def check_scored_actions(samples: Samples) -> None:
    """Scored actions are named ones that change the state, each once, in one order everywhere."""
    game = samples.game
    for state in samples.open_states:
        text, named = game.encode(state), game.actions(state)
        scored = game.scored_actions(state)
        demand(named, f"actions is empty on {shown(text)}, where the game is still open")
        for kind, actions in (("scored_actions", scored), ("actions", named)):
            demand(len(set(actions)) == len(actions), f"{kind} repeats itself on {shown(text)}")
        demand(
            scored == game.scored_actions(game.decode(text)),
            f"scored_actions differs between equal states of {shown(text)}",
        )
        for action in scored:
            demand(action in named, f"{action!r} is scored on {shown(text)} but not in actions")
            demand(
                game.apply(state, action).effect is Effect.CHANGED,
                f"{action!r} is scored on {shown(text)} but changes nothing",
            )
    for episode in samples.episodes:
        open_states = filter(samples.is_open, episode.states)
        for before, after in pairwise(map(game.scored_actions, open_states)):
            common = set(before) & set(after)
            demand(
                [a for a in before if a in common] == [a for a in after if a in common],
                f"scored_actions has no fixed order: {shown(before)}, then {shown(after)}",
            )


def check_all_changes_scored(samples: Samples) -> None:
    """Every named action that changes the state is scored."""
    game = samples.game
    for state in samples.open_states:
        scored = game.scored_actions(state)
        for action in game.actions(state):
            demand(
                action in scored or game.apply(state, action).effect is not Effect.CHANGED,
                f"{action!r} changes {shown(game.encode(state))} and is not scored",
            )


def check_symmetry(samples: Samples) -> None:
    """``canonical`` is one text for all states that the declared symmetries make the same."""
    game = samples.game
    for episode in samples.episodes:
        puzzle = episode.states[0]
        for form in samples.symmetries(puzzle) if samples.symmetries else ():
            demand(
                game.canonical(form) == game.canonical(puzzle),
                f"{shown(game.encode(puzzle))} and {shown(game.encode(form))} are symmetric and "
                "have different canonical texts",
            )


GAME_CHECKS = {
    "declaration": check_declaration,
    "generation": check_generation,
    "pure_rules": check_pure_rules,
    "effects": check_effects,
    "scored_actions": check_scored_actions,
    "all_changes_scored": check_all_changes_scored,
    "symmetry": check_symmetry,
}
