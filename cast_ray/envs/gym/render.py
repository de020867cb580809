"""A board as text or as a picture, the same for both kinds of environments."""

from __future__ import annotations

import numpy as np

from cast_ray.games.game import Game, StateT

METADATA = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}
_PIXELS = 32
"""Of a cell's side."""
_PLAIN = {"#": "#4d4d4d", "x": "#4d4d4d", "_": "#f2efe6", "0": "#f2efe6", ".": "#c9c5bb"}


def render(game: Game[StateT], state: StateT, mode: str | None) -> str | np.ndarray | None:
    """Return what the player sees, in one of ``METADATA``'s modes: never what is hidden.

    ``"ansi"`` gives rows of symbols, ``"rgb_array"`` ``[height, width, 3]`` uint8 with each symbol
    on its colour, None nothing.
    """
    if mode is None:
        return None
    rows = game.visible_rows(state)
    return "\n".join(rows) if mode == "ansi" else _picture(rows)


def _picture(rows: tuple[str, ...]) -> np.ndarray:
    from matplotlib import colormaps, colors  # slow to import
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    height, width = len(rows), max(map(len, rows))
    # 7 spreads neighbours in the alphabet, 11 makes A, the red car, red.
    palette = colormaps["tab20"]
    cells = np.ones((height, width, 3))
    figure = Figure((width, height), dpi=_PIXELS)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), frameon=False)
    for row, line in enumerate(rows):
        for col, symbol in enumerate(line):
            color = _PLAIN.get(symbol) or palette((7 * ord(symbol) + 11) % 20)
            cells[row, col] = colors.to_rgb(color)
            if symbol not in _PLAIN:
                axes.text(col, row, symbol, ha="center", va="center_baseline", size=30)
    axes.imshow(cells)
    axes.hlines(np.arange(height) - 0.5, -0.5, width - 0.5, "white", linewidth=3)
    axes.vlines(np.arange(width) - 0.5, -0.5, height - 0.5, "white", linewidth=3)
    axes.set_axis_off()
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()
