"""Forward distillation: the teacher's actions as text, in the states that the policy visited."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from cast_ray.rollout.chat import ChatTokenizer
from cast_ray.rollout.demonstrations import DEMONSTRATION_SCHEMA
from cast_ray.rollout.trajectory import SCORED_SCHEMA

TEACHER_SCHEMA = pa.schema([*DEMONSTRATION_SCHEMA, SCORED_SCHEMA.field("group")])
"""One row per turn; ``group`` is its trajectory's, so that mini-batches keep groups together."""


def teacher_demonstrations(table: pa.Table, tokenizer: ChatTokenizer) -> pa.Table:
    """Return a row for each turn whose teacher action is known: the conversation, then that action.

    A row holds the conversation up to the turn, the policy's earlier answers included, and then the
    teacher's answer with its end-of-turn token, which alone is in the loss. A trajectory's tokens
    are therefore repeated for each of its turns.

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
    values = {"token_ids": rows, "loss_mask": masks, "group": groups}
    return pa.table(values, schema=TEACHER_SCHEMA)
