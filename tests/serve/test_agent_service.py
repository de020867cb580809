"""The agent, the solver and the games over HTTP, with a scripted policy in the engine's place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from cast_ray.errors import EngineError
from cast_ray.games.puzzles import Puzzle
from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.episode import EpisodeSpec
from cast_ray.rollout.generate import Completion, GenerateRequest, Lane
from cast_ray.seeds import derive_seed
from solver_actors.sokoban.table import solve_sokoban
from tests.support.scripted import (
    GAME,
    ScriptedPolicy,
    build_test_policy,
    in_turn,
    mixed_play,
    play,
)
from tests.support.site import MINEFIELD, RUSH_HOUR, SOKOBAN, read_events, site_app

BOARD = "\n".join(SOKOBAN["board"])


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return build_test_policy(tmp_path_factory.mktemp("policy"))


@pytest.fixture
def site() -> Iterator[TestClient]:
    """Without an agent."""
    with TestClient(site_app()) as client:
        yield client


def begin(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post("/api/episodes", json=body)
    assert answer.status_code == 201, answer.text
    return answer.json()


def finished(client: TestClient, **body: Any) -> dict[str, Any]:
    """Begin an episode that plays itself and return it when it is over."""
    events = read_events(client.get(f"/api/episodes/{begin(client, **body)['id']}/events").text)
    name, _, episode = events[-1]
    assert name == "end"
    # What came turn by turn, but for what Minesweeper shows at the end, is what the end says.
    if episode["game"] != "minesweeper":
        assert [data for name, _, data in events if name == "turn"] == episode["turns"]
    assert [number for name, number, _ in events if name == "turn"] == [
        str(turn["turn"]) for turn in episode["turns"]
    ]
    return episode


def test_an_episode_is_the_one_that_training_would_have_played(tokenizer: ChatTokenizer) -> None:
    policy = ScriptedPolicy(tokenizer, mixed_play(tokenizer))
    ends = set()
    with TestClient(site_app(tokenizer=tokenizer, generate=policy, max_answer_tokens=16)) as site:
        for seed in range(12):
            served = finished(
                site, **SOKOBAN, player="agent", turn_budget=9, temperature=1.0, sampling_seed=seed
            )
            spec = EpisodeSpec(
                step=0,
                group=0,
                episode=0,
                attempt=0,
                puzzle=Puzzle(
                    game="sokoban",
                    tier="",
                    puzzle_id="",
                    board=BOARD,
                    cost_to_go=None,
                    cost_status="unknown",
                    seed=0,
                ),
                turn_budget=9,
                seed=seed,
            )
            trained = play(spec, policy, tokenizer, response_tokens=8192)
            assert served["end_reason"] == trained.end_reason
            ends.add(trained.end_reason)
            assert [turn["answer"] for turn in served["turns"]] == list(trained.answers)
            assert [turn["action"] for turn in served["turns"]] == list(trained.actions)
            assert [turn["effect"] for turn in served["turns"]] == list(trained.effects)
            boards = [turn["board"]["rows"] for turn in served["turns"]]
            boards.append(served["board_now"]["rows"])
            assert ["\n".join(rows) for rows in boards] == list(trained.states)
            sizes = zip(trained.turn_starts, trained.turn_ends, strict=True)
            assert [turn["num_tokens"] for turn in served["turns"]] == [
                end - start for start, end in sizes
            ]
    assert len(ends) >= 3, ends  # solved, deadlock and more, or this proves little


def test_every_turn_is_told_with_what_it_was_worth(tokenizer: ChatTokenizer) -> None:
    answers = in_turn("I walk ```Down```", "no fence", "```Left```", "```Up```", "```Right```")
    with TestClient(site_app(tokenizer=tokenizer, answer=answers)) as site:
        episode = finished(site, **SOKOBAN, player="agent", turn_budget=5)
    assert episode["end_reason"] == "turn_budget"
    assert episode["model"] == "scripted"
    state = GAME.decode(BOARD)
    solver = solve_sokoban(state)
    for turn in episode["turns"]:
        assert turn["cost_before"] == solver.cost_to_go([state])[0]
        costs = solver.action_costs(state)
        assert turn["analysis"]["q"] == {
            name: "dead" if cost == float("inf") else cost for name, cost in costs.items()
        }
        state = GAME.apply(state, turn["action"]).state if turn["action"] else state
        assert turn["cost_after"] == solver.cost_to_go([state])[0]
        assert "\n".join(turn["board_after"]["rows"]) == GAME.encode(state)
    walk, nothing, wall, back, _ = episode["turns"]
    assert walk["action"] == "Down"
    assert walk["regret"] == walk["cost_after"] - walk["cost_before"] + 1
    assert (nothing["effect"], nothing["action"], nothing["regret"]) == ("invalid", "", None)
    assert nothing["feedback"]
    assert wall["effect"] == "ineffective"
    assert wall["regret"] is None
    assert back["regret"] == back["cost_after"] - back["cost_before"] + 1
    assert walk["num_tokens"] > 0
    assert walk["seconds"] >= 0


def test_an_answer_with_any_line_separator_is_one_event(tokenizer: ChatTokenizer) -> None:
    answer = "one\ntwo\u2028three\x85four ```Down```"
    with TestClient(site_app(tokenizer=tokenizer, answer=in_turn(answer))) as site:
        episode = finished(site, **SOKOBAN, player="agent", turn_budget=1)
    assert episode["turns"][0]["answer"] == answer


def test_a_board_can_be_lost_by_deadlock(tokenizer: ChatTokenizer) -> None:
    cornered = {"game": "sokoban", "board": ["######", "#P___#", "#X_XO#", "#__O_#", "######"]}
    with TestClient(site_app(tokenizer=tokenizer, answer=in_turn("```Down```"))) as site:
        episode = finished(site, **cornered, player="agent")
    assert episode["end_reason"] == "deadlock"
    assert len(episode["turns"]) == 1
    assert episode["turns"][0]["cost_after"] == "dead"
    assert episode["turns"][0]["regret"] is None


def test_the_solver_wins_all_three_games(site: TestClient) -> None:
    for puzzle in (SOKOBAN, RUSH_HOUR, MINEFIELD):
        episode = finished(site, **puzzle, player="solver")
        assert episode["end_reason"] == "solved"
        last = episode["turns"][-1]
        assert last["cost_after"] == 0
        if puzzle is not MINEFIELD:
            assert [turn["regret"] for turn in episode["turns"]] == [0] * len(episode["turns"])
            assert episode["turns"][0]["cost_before"] == len(episode["turns"])


def test_a_human_wins_by_the_line_that_the_solver_gives(site: TestClient) -> None:
    for puzzle in (SOKOBAN, RUSH_HOUR, MINEFIELD):
        line = site.post("/api/solve", json=puzzle).json()["line"]
        episode = begin(site, **puzzle, player="human")
        for action in line:
            turn = site.post(f"/api/episodes/{episode['id']}/actions", json={"action": action})
            assert turn.status_code == 200, turn.text
        over = site.get(f"/api/episodes/{episode['id']}").json()
        assert (over["status"], over["end_reason"]) == ("over", "solved")
        late = site.post(f"/api/episodes/{episode['id']}/actions", json={"action": line[0]})
        assert (late.status_code, late.json()["error"]["code"]) == (409, "episode_over")


def test_a_live_minefield_gives_nothing_away(site: TestClient) -> None:
    """Two layouts that look alike must be told alike, until the game is over."""
    looks = []
    for mines in ([[0, 3], [3, 0]], [[0, 3], [3, 1]]):
        puzzle = {"game": "minesweeper", "rows": 4, "cols": 4, "mines": mines}
        puzzle["revealed"] = ["1100", "0000", "0000", "0000"]
        episode = begin(site, **puzzle, player="human")
        flag = site.post(f"/api/episodes/{episode['id']}/actions", json={"action": "flag 2 2"})
        now = site.get(f"/api/episodes/{episode['id']}").json()
        for part in (episode, now):
            for key in ("id", "created"):
                part.pop(key)
        looks.append((episode, flag.json(), now))
    # Same counts in the open cells, or this would prove nothing.
    assert looks[0][0]["board"]["rows"][0][:2] == looks[1][0]["board"]["rows"][0][:2]
    assert looks[0] == looks[1]
    turn = looks[0][1]
    assert turn["cost_before"] is turn["cost_after"] is turn["analysis"]["q"] is None
    assert turn["analysis"]["mines"] is not None
    assert turn["board"]["mines"] is None


def test_a_minefield_shows_everything_when_it_is_over(site: TestClient) -> None:
    episode = begin(site, **MINEFIELD, player="human")
    assert episode["analysis"]["cost"] is None
    first = site.post(
        f"/api/episodes/{episode['id']}/actions", json={"action": "reveal 0 3"}
    ).json()
    assert first["excess_risk"] == pytest.approx(first["analysis"]["mines"][0][3])
    over = site.get(f"/api/episodes/{episode['id']}").json()
    assert over["end_reason"] == "lost"
    turn = over["turns"][0]
    assert isinstance(turn["cost_before"], int)
    assert turn["cost_after"] == "dead"
    assert turn["analysis"]["q"]["reveal 0 3"] == "dead"
    assert sorted(turn["board"]["mines"]) == MINEFIELD["mines"]


def test_one_move_and_many(tokenizer: ChatTokenizer) -> None:
    with TestClient(site_app(tokenizer=tokenizer, answer=in_turn("so: ```Right```"))) as site:
        move = site.post("/api/move", json=SOKOBAN).json()
        assert (move["action"], move["answer"], move["model"]) == (
            "Right",
            "so: ```Right```",
            "scripted",
        )
        body = {"puzzles": [SOKOBAN, {"game": "sokoban", "board": "###"}, SOKOBAN, RUSH_HOUR]}
        results = site.post("/api/moves", json=body).json()["results"]
    assert results[0]["action"] == results[2]["action"] == "Right"
    assert results[1]["error"]["code"] == "board_invalid"
    assert results[1]["error"]["field"] == "board" or "puzzles[1]" in results[1]["error"]["field"]
    assert results[3]["effect"] == "invalid"  # Right is no slide


def test_a_turn_budget_and_the_standard_one_reach_the_policy(tokenizer: ChatTokenizer) -> None:
    policy = ScriptedPolicy(tokenizer, in_turn("```Right```"))
    with TestClient(site_app(tokenizer=tokenizer, generate=policy)) as site:
        site.post("/api/move", json=SOKOBAN)
        finished(site, **SOKOBAN, player="agent", turn_budget=3)
    budget = GAME.tiers["id"].turn_budget
    assert f"Steps left: {budget}" in tokenizer.text(policy.requests[0].token_ids)
    assert "Steps left: 3" in tokenizer.text(policy.requests[1].token_ids)
    assert len(policy.requests) == 4
    assert policy.requests[1].seed == derive_seed(0, "turn", 0)


def test_a_made_board_is_the_same_everywhere(site: TestClient) -> None:
    for game in ("sokoban", "minesweeper", "rush_hour"):
        named = {"game": game, "tier": "mini", "seed": 5}
        board = site.post("/api/boards", json=named).json()["board"]
        assert begin(site, **named, player="human")["board"] == board
        other = site.post("/api/boards", json=named | {"seed": 6}).json()["board"]
        assert other != board
    # Nobody has shown the asker this layout, so its costs are not told.
    solved = site.post("/api/solve", json={"game": "minesweeper", "tier": "mini", "seed": 5})
    assert solved.json()["cost"] is None
    assert solved.json()["mines"] is not None
    assert not solved.json()["privileged"]


def test_the_solver_says_what_it_knows(site: TestClient) -> None:
    known = site.post("/api/solve", json=SOKOBAN | {"temperature": 0.5}).json()
    assert known["cost"] == len(known["line"])
    assert known["best"] == known["line"][0]
    assert sum(known["teacher"].values()) == pytest.approx(1)
    assert max(known["teacher"], key=known["teacher"].__getitem__) in known["q"]
    seen = {"game": "minesweeper", "visible": ["001.", "112.", "....", "...."], "num_mines": 3}
    view = site.post("/api/solve", json=seen).json()
    assert view["cost"] is None
    assert view["mines"][0][0] is None
    total = sum(chance for row in view["mines"] for chance in row if chance is not None)
    assert total == pytest.approx(3)
    assert site.post("/api/solve", json=MINEFIELD).json()["privileged"]


def test_an_engine_that_fails_ends_the_episode_with_the_reason(tokenizer: ChatTokenizer) -> None:
    async def broken(request: GenerateRequest, lane: Lane) -> Completion:
        raise EngineError("engine m: no")

    with TestClient(site_app(tokenizer=tokenizer, generate=broken)) as site:
        episode = finished(site, **SOKOBAN, player="agent")
        assert episode["end_reason"] == "failed"
        assert episode["error"]["code"] == "engine_failed"
        move = site.post("/api/move", json=SOKOBAN)
        assert (move.status_code, move.json()["error"]["code"]) == (502, "engine_failed")


def test_an_episode_is_ended_by_delete_and_forgotten(tokenizer: ChatTokenizer) -> None:
    is_asked = asyncio.Event()

    async def slow(request: GenerateRequest, lane: Lane) -> Completion:
        is_asked.set()
        await asyncio.sleep(60)
        raise AssertionError("not reached")

    with TestClient(site_app(tokenizer=tokenizer, generate=slow)) as site:
        episode = begin(site, **SOKOBAN, player="agent")
        assert site.delete(f"/api/episodes/{episode['id']}").status_code == 204
        gone = site.get(f"/api/episodes/{episode['id']}")
        assert (gone.status_code, gone.json()["error"]["code"]) == (404, "episode_unknown")


def test_events_go_on_behind_the_last_one_seen(site: TestClient) -> None:
    episode = begin(site, **SOKOBAN, player="solver")
    address = f"/api/episodes/{episode['id']}/events"
    whole = read_events(site.get(address).text)
    rest = read_events(site.get(address, headers={"Last-Event-ID": "1"}).text)
    assert rest == whole[2:]
    assert read_events(site.get(address, params={"after": 1}).text) == rest


def test_without_a_model_the_agent_is_refused_and_the_rest_works(site: TestClient) -> None:
    assert "agent" not in site.get("/api/about").json()["players"]
    for path, body in (("move", SOKOBAN), ("episodes", SOKOBAN | {"player": "agent"})):
        answer = site.post(f"/api/{path}", json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "no_agent")


def test_the_examples_of_the_documentation_run(tokenizer: ChatTokenizer) -> None:
    with TestClient(site_app(tokenizer=tokenizer, answer=in_turn("```Right```"))) as site:
        page = site.get("/openapi.json").json()
        schemas = page["components"]["schemas"]
        tried = 0
        for path, methods in page["paths"].items():
            body = methods.get("post", {}).get("requestBody")
            if body is None or "{" in path:
                continue
            name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
            for example in schemas[name]["examples"]:
                answer = site.post(path, json=example)
                assert answer.status_code in (200, 201), (path, example, answer.text)
                tried += 1
    assert tried >= 10
