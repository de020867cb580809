"""Boards as pictures in reports: one drawing per game, text for all others."""

from cast_ray.runs.report.boards.drawing import BoardDrawing
from cast_ray.runs.report.boards.registry import board_legend, draw_board

__all__ = ["BoardDrawing", "board_legend", "draw_board"]
