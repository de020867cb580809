"""The value network as a file and as a function: what it refuses, what it leaves alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from cast_ray.envs.gym import get_numeric_rules, widest_tier
from cast_ray.errors import ConfigError, ModelError
from cast_ray.games import get_game
from cast_ray.games.generators import get_generator
from cast_ray.runs.directories import make_partial, publish
from solver_actors.value_net import network as q_network

SMALL = {"d_model": 16, "num_heads": 2, "num_layers": 2, "output_size": 24}


def small(game: str = "rush_hour", tier: str = "mini", *, seed: int = 0) -> q_network.QNetwork:
    torch.manual_seed(seed)
    return q_network.QNetwork(q_network.shape_for(game, tier, **SMALL)).eval()


def boards(game: str, tier: str, num: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cells and masks of generated boards, with the arrays of the widest tier."""
    rules, rng = get_numeric_rules(game), np.random.default_rng(0)
    made = [get_generator(game)(get_game(game).tiers[tier], rng) for _ in range(num)]
    arrays = [rules.load(state, widest_tier(game, tier)) for state in made]
    cells, mask = (torch.tensor(np.stack([one[part] for one in arrays])) for part in (0, 1))
    return cells, mask


def rewritten(directory: Path, **changes: object) -> None:
    """Write the shape anew, whole by its marker: somebody else's network, not a damaged one."""
    shape = json.loads((directory / q_network.SHAPE_FILE).read_text())
    weights = load_file(directory / q_network.WEIGHTS_FILE)
    partial = make_partial(directory)
    shape = {key: value for key, value in (shape | changes).items() if value is not None}
    (partial / q_network.SHAPE_FILE).write_text(json.dumps(shape))
    save_file(weights, partial / q_network.WEIGHTS_FILE)
    publish(partial, directory)


def test_the_papers_network_has_the_papers_sizes() -> None:
    network = q_network.QNetwork(q_network.shape_for("rush_hour", "id"))
    layers = [layer for layer in network.layers if isinstance(layer, nn.TransformerEncoderLayer)]
    assert [layer.self_attn.embed_dim for layer in layers] == [128] * 3
    assert [layer.self_attn.num_heads for layer in layers] == [8] * 3
    assert network.output.out_features == 512
    assert network.head.out_features == len(network.shape.actions) == 9 * 8
    assert not torch.equal(layers[0].linear1.weight, layers[1].linear1.weight)


@pytest.mark.parametrize("tier", ["mini", "id", "unseen"])
def test_a_net_of_one_tier_reads_the_boards_of_all_tiers_of_its_size(tier: str) -> None:
    network = small(tier="id")
    q_network.check_fits(network, "rush_hour", tier)
    cells, mask = boards("rush_hour", tier)
    q = network(cells)
    assert q.shape == mask.shape == (8, 72)
    assert q.dtype == torch.float32
    values = q_network.state_values(q, mask)
    rows = zip(q.tolist(), mask.tolist(), strict=True)
    assert values.tolist() == [max(x for x, ok in zip(*row, strict=True) if ok) for row in rows]


def test_every_cell_and_its_place_counts() -> None:
    network = small()
    cells, _ = boards("rush_hour", "mini", num=1)
    seen = network(cells)
    for place in range(36):
        changed = cells.clone()
        changed.view(-1)[place] = (changed.view(-1)[place] + 1) % 11
        assert not torch.equal(network(changed), seen), place
    assert not torch.allclose(network(cells.flip(2)), seen)


def test_what_one_board_is_said_does_not_hang_on_the_others() -> None:
    network = small()
    cells, _ = boards("rush_hour", "mini")
    alone = torch.cat([network(one[None]) for one in cells])
    torch.testing.assert_close(network(cells), alone, rtol=1e-5, atol=1e-6)


def test_illegal_actions_are_never_the_best_however_large() -> None:
    q = torch.tensor([[5.0, 0.0, 9.0], [1.0, -2.0, -3.0], [7.0, 7.0, 7.0]])
    mask = torch.tensor([[0, 1, 0], [0, 1, 1], [0, 0, 0]], dtype=torch.int8)
    masked = q_network.masked_q(q, mask)
    assert masked.tolist() == [[-torch.inf, 0, -torch.inf], [-torch.inf, -2, -3], [-torch.inf] * 3]
    assert q_network.state_values(q, mask).tolist() == [0, -2, -torch.inf]


def test_a_saved_network_is_the_same_network(tmp_path: Path) -> None:
    network = small()
    cells, _ = boards("rush_hour", "mini")
    q_network.save_q_network(network, tmp_path / "net")
    loaded = q_network.load_q_network(tmp_path / "net")
    assert loaded.shape == network.shape
    for name, tensor in network.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor)
    torch.testing.assert_close(loaded(cells), network(cells), rtol=1e-5, atol=1e-6)
    assert not any(p.requires_grad for p in loaded.parameters())
    q_network.save_q_network(small(seed=1), tmp_path / "net")  # an older one is replaced
    replaced = q_network.load_q_network(tmp_path / "net").state_dict()
    assert torch.equal(replaced["head.weight"], small(seed=1).head.weight)


def test_missing_network_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="directory"):
        q_network.load_q_network(tmp_path)


@pytest.mark.parametrize("name", [q_network.SHAPE_FILE, q_network.WEIGHTS_FILE])
def test_one_changed_byte_is_found(tmp_path: Path, name: str) -> None:
    q_network.save_q_network(small(), tmp_path)
    damaged = bytearray((tmp_path / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (tmp_path / name).write_bytes(damaged)
    with pytest.raises(ModelError, match=f"{name}.*damaged"):
        q_network.load_q_network(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"d_model": 32}, r"q_network\.json"),
        ({"num_layers": 3}, r"q_network\.json"),
        ({"num_heads": 3}, "num_heads.*d_model"),
        ({"rows": None}, "rows"),
        ({"depth": 1}, "depth"),
        ({"rows": "6"}, "rows.*int.*'6'"),
        ({"num_heads": 0}, "num_heads.*1.*0"),
        ({"output_size": -1}, "output_size.*1.*-1"),
        ({"actions": 4}, "describes no value network"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    q_network.save_q_network(small(), tmp_path / "net")
    rewritten(tmp_path / "net", **changes)
    with pytest.raises(ModelError, match=message):
        q_network.load_q_network(tmp_path / "net")


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_weight_that_is_not_finite_is_refused(tmp_path: Path, bad: float) -> None:
    network = small()
    with torch.no_grad():
        network.head.bias[3] = bad
    q_network.save_q_network(network, tmp_path / "net")
    with pytest.raises(ModelError, match=r"head\.bias.*finite"):
        q_network.load_q_network(tmp_path / "net")


@pytest.mark.parametrize(
    ("net", "tier", "message"),
    [
        (("rush_hour", "mini"), ("sokoban", "mini"), "game.*sokoban.*rush_hour"),
        (("sokoban", "id"), ("sokoban", "unseen"), "rows.*7.*6"),
    ],
)
def test_a_net_of_another_board_is_refused(
    net: tuple[str, str], tier: tuple[str, str], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        q_network.check_fits(small(*net), *tier)


def test_a_net_of_another_action_set_is_refused() -> None:
    shape = q_network.shape_for("rush_hour", "mini", **SMALL)
    fewer = q_network.QNetwork(replace(shape, actions=shape.actions[:32]))
    with pytest.raises(ModelError, match=r"actions.*72.*32"):
        q_network.check_fits(fewer, "rush_hour", "mini")


def test_a_game_without_numbers_or_a_wrong_tier_is_refused() -> None:
    with pytest.raises(ConfigError, match="got 'chess'"):
        q_network.shape_for("chess", "mini")
    with pytest.raises(ConfigError, match=r"tier.*mini.*'easy'"):
        q_network.shape_for("rush_hour", "easy")
