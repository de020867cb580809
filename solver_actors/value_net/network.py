"""The value network: a small transformer over the cells of a board, one Q-value per action.

Letters: ``B`` boards, ``A`` actions of the network. Its actions are those of the widest tier of its
board size (``envs.gym.widest_tier``), so that boards with fewer pieces mask what they lack.
Shape and sizes: the paper, tab:dqn_hp.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cast_ray.envs.gym import get_numeric_rules, widest_tier
from cast_ray.errors import ConfigError, ModelError, RunDirectoryError
from cast_ray.files import checked, read_json
from cast_ray.runs.directories import check_whole, make_partial, publish, save_refusals_named

SHAPE_FILE, WEIGHTS_FILE = "q_network.json", "q_network.safetensors"


@dataclass(frozen=True, slots=True, kw_only=True)
class QNetworkShape:
    """The input and output of a network, and its size."""

    game: str
    rows: int
    cols: int
    num_symbols: int
    """Cells hold 0 to this, exclusive."""
    actions: tuple[str, ...]
    """The ``A`` actions in the order of their Q-values, as ``Game.apply`` spells them."""
    d_model: int = 128
    num_heads: int = 8
    num_layers: int = 3
    output_size: int = 512
    """Width of the encoder's output, which the Q-values are read from."""

    def __post_init__(self) -> None:
        sizes = ("rows", "cols", "num_symbols", "d_model", "num_heads", "num_layers", "output_size")
        for name in sizes:
            value = getattr(self, name)
            if value < 1:
                raise ConfigError(f"{name} of a value network must be >= 1, got {value}")
        if self.d_model % self.num_heads:
            raise ConfigError(
                f"num_heads of a value network must divide d_model ({self.d_model}), "
                f"got {self.num_heads}"
            )


def shape_for(
    game: str,
    tier: str,
    *,
    d_model: int = 128,
    num_heads: int = 8,
    num_layers: int = 3,
    output_size: int = 512,
) -> QNetworkShape:
    """Return the shape of a network for all boards that have a tier's size.

    Raises:
        ConfigError: there is no such game or tier, the game has no boards of numbers, or the sizes
            do not fit each other.
    """
    rules, wide = get_numeric_rules(game), widest_tier(game, tier)
    return QNetworkShape(
        game=game,
        rows=wide.rows,
        cols=wide.cols,
        num_symbols=rules.num_symbols(wide),
        actions=rules.actions(wide),
        d_model=d_model,
        num_heads=num_heads,
        num_layers=num_layers,
        output_size=output_size,
    )


class QNetwork(nn.Module):
    """Q-values of boards (paper, app:dqn): cells and their places, a transformer, one head."""

    def __init__(self, shape: QNetworkShape) -> None:
        super().__init__()
        self.shape = shape
        num_cells = shape.rows * shape.cols
        self.symbols = nn.Embedding(shape.num_symbols, shape.d_model)
        self.places = nn.Parameter(torch.randn(num_cells, shape.d_model))
        # Not nn.TransformerEncoder: it begins with copies of one layer.
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                shape.d_model,
                shape.num_heads,
                dim_feedforward=4 * shape.d_model,
                dropout=0.0,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(shape.num_layers)
        )
        self.norm = nn.LayerNorm(shape.d_model)
        # From all cells: an action belongs to a place. Read from one token for the
        # board, or from the mean of all, the same costs were learned ten times more slowly.
        self.output = nn.Linear(num_cells * shape.d_model, shape.output_size)
        self.head = nn.Linear(shape.output_size, len(shape.actions))

    def forward(self, cells: Tensor) -> Tensor:
        """Return ``[B, A]`` float32 Q-values of boards, illegal actions included.

        Args:
            cells: ``[B, rows, cols]`` symbol numbers of any integer type.
        """
        hidden = self.symbols(cells.flatten(1).long()) + self.places
        for layer in self.layers:
            hidden = layer(hidden)
        output = self.output(self.norm(hidden).flatten(1))
        return self.head(nn.functional.gelu(output))


def masked_q(q: Tensor, mask: Tensor) -> Tensor:
    """Return ``[B, A]`` Q-values with -inf where ``mask`` ``[B, A]`` is 0.

    Not with the least float: RLlib's own exploration draws actions of that value.
    """
    return q.masked_fill(mask == 0, -torch.inf)


def state_values(q: Tensor, mask: Tensor) -> Tensor:
    """Return ``[B]`` V(s) = max over legal a of Q(s, a); -inf where nothing is legal."""
    return masked_q(q, mask).amax(dim=-1)


def save_q_network(network: QNetwork, directory: Path) -> None:
    """Write a network as a directory, replacing an older one, so that it is complete or absent.

    Raises:
        EnvironmentSetupError: the file system refused something.
    """
    with save_refusals_named(directory):
        partial = make_partial(directory)
        text = json.dumps(asdict(network.shape), indent=1)
        (partial / SHAPE_FILE).write_text(text + "\n")
        tensors = {name: t.detach().cpu().contiguous() for name, t in network.state_dict().items()}
        save_file(tensors, partial / WEIGHTS_FILE)
        publish(partial, directory)


def load_q_network(directory: Path) -> QNetwork:
    """Return a saved network, ready to be asked, on the CPU.

    Raises:
        ModelError: there is none, a file is damaged, what is in it does not fit, or a weight is not
            finite.
    """
    if not (directory / SHAPE_FILE).is_file():
        raise ModelError(
            f"{directory} has no {SHAPE_FILE}: give the directory of a value network, as "
            "cast-ray value-net train writes it (RUN/value_net)"
        )
    try:
        check_whole(directory)
    except RunDirectoryError as error:
        raise ModelError(f"the value network cannot be used: {error}") from None
    network = QNetwork(_read_shape(directory / SHAPE_FILE))
    try:
        network.load_state_dict(load_file(directory / WEIGHTS_FILE))
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(
            f"{directory / WEIGHTS_FILE} does not fit {SHAPE_FILE}: {reason}"
        ) from None
    for name, tensor in network.state_dict().items():
        if not tensor.isfinite().all():
            raise ModelError(
                f"weight {name} in {directory / WEIGHTS_FILE} is not finite: train the network "
                "again with a smaller learning rate"
            )
    return network.eval().requires_grad_(False)


def check_fits(network: QNetwork, game: str, tier: str) -> None:
    """Raise ModelError unless a network reads the boards of a tier and names their actions.

    Raises:
        ConfigError: there is no such game or tier, or the game has no boards of numbers.
    """
    wanted, has = shape_for(game, tier), network.shape
    for what in ("game", "rows", "cols", "num_symbols", "actions"):
        expected, found = getattr(wanted, what), getattr(has, what)
        if expected != found:
            if what == "actions":
                expected, found = (f"{len(names)} ({names[0]} …)" for names in (expected, found))
            raise ModelError(
                f"the value network does not fit {game}:{tier}: {what} must be {expected}, "
                f"got {found}: train one for that tier (cast-ray value-net train)"
            )


def _read_shape(path: Path) -> QNetworkShape:
    try:
        return checked(QNetworkShape, read_json(path))
    except (ValueError, ConfigError) as error:
        raise ModelError(f"{path} describes no value network: {error}") from None
