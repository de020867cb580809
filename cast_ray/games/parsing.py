"""Where an action stands in an answer: the fence rule that all games share."""

from __future__ import annotations

FENCE = "```"
LANGUAGE_TAGS = frozenset({"action", "text", "python", "bash"})


def last_fenced_block(answer: str) -> str | None:
    """Return the content of the last pair of fences, stripped, or None where there is none.

    Fences are paired from the left without overlap, so an odd fence at the end is ignored. A
    language tag in front (any case, a word of its own) is dropped if something remains. Linear in
    the length of the answer, and never raises.

    Args:
        answer: whatever a policy wrote.

    Returns:
        The content, never empty; None without a pair of fences or with an empty last pair.
    """
    parts = split_at_last_block(answer)
    if parts is None:
        return None
    content = parts[1].strip()
    tag, *rest = content.split(maxsplit=1) or [""]
    if rest and tag.lower() in LANGUAGE_TAGS:
        return rest[0]
    return content or None


def split_at_last_block(answer: str) -> tuple[str, str, str] | None:
    """Return what stands before, inside and after the last pair of fences; None without a pair.

    The fences are left where they are, at the end of the first part and the start of the last: the
    three together are the answer.
    """
    pieces = answer.split(FENCE)
    num_pairs = (len(pieces) - 1) // 2
    if num_pairs == 0:
        return None
    inside = 2 * num_pairs - 1
    before, after = FENCE.join(pieces[:inside]), FENCE.join(pieces[inside + 1 :])
    return before + FENCE, pieces[inside], FENCE + after
