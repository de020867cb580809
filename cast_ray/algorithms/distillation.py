"""Forward distillation: the teacher's own actions as text, where the policy has been."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.demonstrations import DEMONSTRATION_SCHEMA
from cast_ray.rollout.trajectory import SCORED_SCHEMA

TEACHER_SCHEMA = pa.schema([*DEMONSTRATION_SCHEMA, SCORED_SCHEMA.field("group")])
"""One row a turn; ``group`` is that of its trajectory, so that mini-batches keep groups whole."""


def teacher_demonstrations(table: pa.Table, tokenizer: ChatTokenizer) -> pa.Table:
    """Return a row for each turn whose teacher action is known: the conversation, then that action.

    A row holds the conversation's own tokens up to the turn, the policy's earlier answers among
    them, and the teacher's answer with its end-of-turn token, which alone is in the loss. A long
    trajectory's tokens therefore come once for each of its turns.

    Args:
        table: ``SCORED_SCHEMA`` or wider.
        tokenizer: writes the teacher's answer.

    Returns:
        ``TEACHER_SCHEMA``, in the order of trajectories and turns.
    """
    answers: dict[str, np.ndarray] = {}
    rows: list[np.ndarray] = []
    num_context_tokens: list[int] = []
    groups: list[int] = []
    columns = table.select(["token_ids", "turn_starts", "teacher_actions", "group"])
    for index in range(columns.num_rows):
        token_ids = columns["token_ids"][index].values.to_numpy()
        starts = columns["turn_starts"][index].as_py()
        actions = columns["teacher_actions"][index].as_py()
        for start, action in zip(starts, actions, strict=True):
            if not action:
                continue
            if action not in answers:
                ids = tokenizer.answer(f"```{action}```")
                answers[action] = np.array(ids, dtype=np.int32)
            rows.append(np.concatenate([token_ids[:start], answers[action]]))
            num_context_tokens.append(start)
            groups.append(columns["group"][index].as_py())
    masks = [
        (np.arange(len(row)) >= start).astype(np.uint8)
        for row, start in zip(rows, num_context_tokens, strict=True)
    ]
    arrays = [
        _list_array(rows, np.int32),
        _list_array(masks, np.uint8),
        pa.array(groups, pa.int32()),
    ]
    return pa.Table.from_arrays(arrays, schema=TEACHER_SCHEMA)


def _list_array(rows: Sequence[np.ndarray], kind: type[np.generic]) -> pa.ListArray:
    offsets = np.cumsum([0, *(len(row) for row in rows)], dtype=np.int32)
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.array(np.concatenate([*rows, np.zeros(0, kind)]))
    )
