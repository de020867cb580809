"""A* over the pushes of a Sokoban room, as kernels, with bounded memory and work.

A node is the position right after a push (or the first one); what leads from node to node is the
player's shortest walk to a push, and that push. So N counts every step, though only pushes make
nodes. The bound (``bounds``) is consistent: a node once taken from the open list is final.
numba's cache depends on this file alone: after a change to a kernel in ``assignment`` or
``bounds``, change this file too (or delete ``__pycache__``), or the old kernel stays in use.
Letters: ``F`` floor cells, ``K`` boxes. A *key* is ``[K + 1]`` int32: player, boxes ascending.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
from numba import njit

from solver_actors.sokoban.assignment import (
    IMPOSSIBLE,
    Assignment,
    assign_all,
    reassign_row,
    total_cost,
)
from solver_actors.sokoban.bounds import Room, is_stuck

SOLVED, DEAD, GAVE_UP = 0, 1, 2
"""How a search ends: with a shortest solution; with no position left; at one of its limits."""

_NUM_NODES, _NUM_QUEUED, _WORK = 0, 1, 2


class _Nodes(NamedTuple):
    """Positions met so far, numbered in the order of meeting, and a hash table of the numbers."""

    keys: np.ndarray
    """``[n, K + 1]`` int32."""
    steps: np.ndarray
    """``[n]`` int64 fewest steps found from the first position."""
    bounds: np.ndarray
    """``[n]`` int64 lower bound of the steps that are left."""
    parents: np.ndarray
    """``[n]`` int32 node before the last push; -1 for the first."""
    directions: np.ndarray
    """``[n]`` int8 direction of the last push."""
    is_final: np.ndarray
    """``[n]`` bool."""
    slots: np.ndarray
    """``[2 ** b]`` int32 number of a node, -1 = free; open addressing."""
    counts: np.ndarray
    """``[3]`` int64 nodes; entries ever put on the open list; cells and costs read."""


class _Place(NamedTuple):
    """Scratch arrays of the node that is being expanded."""

    is_box: np.ndarray
    """``[F]`` bool."""
    holds: np.ndarray
    """``[F]`` bool, all False (see ``is_stuck``)."""


@njit(cache=True)
def search(
    room: Room, key: np.ndarray, bound: int, max_nodes: int, max_work: int
) -> tuple[int, np.ndarray]:
    """Return how the search ended and, if solved, the directions of all steps, ``[N]`` int8.

    Args:
        room: the room.
        key: the first position, not proven dead.
        bound: its lower bound.
        max_nodes: stops when more entries were put on the open list, which bounds the memory.
        max_work: stops when more floor cells and entries of cost matrices were read.
    """
    num_boxes = len(key) - 1
    nodes = _new_nodes(max_nodes + 4 * num_boxes, num_boxes)
    open_list = [(bound, bound, 0)]
    _add(nodes, _find(nodes, key), key, bound)
    num_floor = len(room.neighbors)
    place = _Place(np.zeros(num_floor, np.bool_), np.zeros(num_floor, np.bool_))
    while open_list:
        _, _, node = heappop(open_list)
        if nodes.is_final[node]:
            continue  # it had been entered again, with fewer steps
        if nodes.bounds[node] == 0:
            return SOLVED, _directions_to(room, nodes, node, place.is_box)
        nodes.is_final[node] = True
        _expand(room, nodes, node, open_list, place)
        if nodes.counts[_NUM_QUEUED] > max_nodes or nodes.counts[_WORK] > max_work:
            return GAVE_UP, nodes.directions[:0]
        if 2 * nodes.counts[_NUM_NODES] > len(nodes.slots):
            nodes = _with_more_slots(nodes)
    return DEAD, nodes.directions[:0]


@njit(cache=True)
def _expand(
    room: Room,
    nodes: _Nodes,
    node: int,
    open_list: list[tuple[int, int, int]],
    place: _Place,
) -> None:
    """Enter every position one walk and one push further on the open list, unless it is known."""
    boxes = nodes.keys[node, 1:]
    place.is_box[boxes] = True
    walked = _walk(room.neighbors, place.is_box, nodes.keys[node, 0])
    costs = room.distances[boxes]
    assignment, work = assign_all(costs)
    nodes.counts[_WORK] += work + len(walked)
    for box in range(len(boxes)):
        for direction in range(4):
            behind = room.neighbors[boxes[box], direction ^ 1]
            ahead = room.neighbors[boxes[box], direction]
            if behind < 0 or walked[behind] < 0 or ahead < 0:
                continue
            if place.is_box[ahead] or not room.is_live[ahead]:
                continue
            steps = nodes.steps[node] + walked[behind] + 1
            key = _key_after_push(nodes.keys[node], box, ahead)
            slot = _find(nodes, key)
            child = nodes.slots[slot]
            if child >= 0 and steps >= nodes.steps[child]:
                continue
            if child < 0:
                if is_stuck(room, key[1:], place.holds):
                    continue
                bound, work = _bound_after_push(room, costs, box, ahead, assignment)
                nodes.counts[_WORK] += work + len(boxes)
                if bound >= IMPOSSIBLE:
                    continue
                child = _add(nodes, slot, key, bound)
            nodes.steps[child] = steps
            nodes.parents[child] = node
            nodes.directions[child] = direction
            nodes.counts[_NUM_QUEUED] += 1
            bound = nodes.bounds[child]
            # Of equal sums the one nearer to the goal comes first.
            heappush(open_list, (steps + bound, bound, child))
    place.is_box[boxes] = False


@njit(cache=True)
def _bound_after_push(
    room: Room, costs: np.ndarray, box: int, ahead: int, assignment: Assignment
) -> tuple[int, int]:
    """Return the bound with one box moved to a cell, and the costs read for it."""
    before = costs[box].copy()
    costs[box] = room.distances[ahead]
    changed, work = reassign_row(costs, box, assignment)
    bound = total_cost(costs, changed)
    costs[box] = before
    return bound, work


@njit(cache=True)
def _walk(neighbors: np.ndarray, is_box: np.ndarray, start: int) -> np.ndarray:
    """Return ``[F]`` int32 steps of a walk from a cell to each, -1 where none leads."""
    walked = np.full(len(neighbors), -1, np.int32)
    queue = np.empty(len(neighbors), np.int32)
    walked[start] = 0
    queue[0] = start
    head, length = 0, 1
    while head < length:
        here = queue[head]
        head += 1
        for direction in range(4):
            neighbor = neighbors[here, direction]
            if neighbor >= 0 and walked[neighbor] < 0 and not is_box[neighbor]:
                walked[neighbor] = walked[here] + 1
                queue[length] = neighbor
                length += 1
    return walked


@njit(cache=True)
def _key_after_push(key: np.ndarray, box: int, ahead: int) -> np.ndarray:
    """Return the key with a box on the cell ahead, the player on the box's, boxes ascending."""
    after = key.copy()
    after[0] = key[1 + box]
    place = 1 + box
    while place > 1 and after[place - 1] > ahead:
        after[place] = after[place - 1]
        place -= 1
    while place + 1 < len(after) and after[place + 1] < ahead:
        after[place] = after[place + 1]
        place += 1
    after[place] = ahead
    return after


@njit(cache=True)
def _directions_to(room: Room, nodes: _Nodes, node: int, is_box: np.ndarray) -> np.ndarray:
    """Return ``[N]`` int8 directions of the steps from the first position to a node, in order."""
    directions = np.empty(nodes.steps[node], np.int8)
    step = len(directions)
    while nodes.parents[node] >= 0:
        parent = nodes.parents[node]
        boxes = nodes.keys[parent, 1:]
        is_box[boxes] = True
        walked = _walk(room.neighbors, is_box, nodes.keys[parent, 0])
        is_box[boxes] = False
        step -= 1
        directions[step] = nodes.directions[node]
        # The player stands where the box stood, one step on from where the push began.
        here = room.neighbors[nodes.keys[node, 0], nodes.directions[node] ^ 1]
        while walked[here] > 0:
            for direction in range(4):
                before = room.neighbors[here, direction ^ 1]
                if before >= 0 and walked[before] == walked[here] - 1:
                    step -= 1
                    directions[step] = direction
                    here = before
                    break
        node = parent
    return directions


@njit(cache=True)
def _new_nodes(max_nodes: int, num_boxes: int) -> _Nodes:
    """Return no nodes yet; memory that no node comes to use is never touched."""
    num_slots = 1024
    while num_slots < 16 * num_boxes:  # a node has up to 4 K children before the next look
        num_slots *= 2
    return _Nodes(
        np.empty((max_nodes, num_boxes + 1), np.int32),
        np.empty(max_nodes, np.int64),
        np.empty(max_nodes, np.int64),
        np.empty(max_nodes, np.int32),
        np.empty(max_nodes, np.int8),
        np.empty(max_nodes, np.bool_),
        np.full(num_slots, -1, np.int32),
        np.zeros(3, np.int64),
    )


@njit(cache=True)
def _with_more_slots(nodes: _Nodes) -> _Nodes:
    """Return the same nodes with twice as many slots."""
    grown = _Nodes(
        nodes.keys,
        nodes.steps,
        nodes.bounds,
        nodes.parents,
        nodes.directions,
        nodes.is_final,
        np.full(2 * len(nodes.slots), -1, np.int32),
        nodes.counts,
    )
    for node in range(nodes.counts[_NUM_NODES]):
        grown.slots[_find(grown, nodes.keys[node])] = node
    return grown


@njit(cache=True)
def _add(nodes: _Nodes, slot: int, key: np.ndarray, bound: int) -> int:
    """Number a new node, as the first position would be, and return its number."""
    node = nodes.counts[_NUM_NODES]
    nodes.counts[_NUM_NODES] += 1
    nodes.slots[slot] = node
    nodes.keys[node] = key
    nodes.steps[node] = 0
    nodes.bounds[node] = bound
    nodes.parents[node] = -1
    nodes.is_final[node] = False
    return node


@njit(cache=True)
def _find(nodes: _Nodes, key: np.ndarray) -> int:
    """Return the slot that holds a key's node, or the free slot where it belongs."""
    mixed = np.uint64(0)
    for cell in key:
        mixed = (mixed ^ np.uint64(cell)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    mask = len(nodes.slots) - 1
    slot = np.int64(mixed & np.uint64(mask))
    while nodes.slots[slot] >= 0 and not _equal(nodes.keys[nodes.slots[slot]], key):
        slot = (slot + 1) & mask
    return int(slot)


@njit(cache=True)
def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether two keys are the same, which ends at the first difference."""
    place = 0
    while place < len(one) and one[place] == other[place]:
        place += 1
    return place == len(one)
