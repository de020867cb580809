"""PackedPolicy against Hugging Face's own models, run row by row with eager attention."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from cast_ray.errors import ModelError
from cast_ray.learner.policy import PackedPolicy, load_policy, save_policy
from cast_ray.rollout.chat_template import read_chat_pieces
from tests.support.refusals import refused
from tests.support.scripted import build_test_policy
from tests.support.tiny_model import build_tiny_model

VOCAB_SIZE = 64
SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
}
# float32 in another order of sums, over two layers: measured at most 1e-6.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-5}


def saved(model: PreTrainedModel, directory: Path) -> Path:
    model.save_pretrained(directory)
    return directory


def qwen3(sliding_window: int | None, *, tied: bool = True) -> Qwen3ForCausalLM:
    torch.manual_seed(1)
    return Qwen3ForCausalLM(
        Qwen3Config(
            **SMALL,
            use_sliding_window=sliding_window is not None,
            sliding_window=sliding_window,
            max_window_layers=0,
            tie_word_embeddings=tied,
        )
    )


def packed(directory: Path, *, tokens_per_logit_chunk: int = 5) -> PackedPolicy:
    model = load_policy(directory, dtype=torch.float32)
    return PackedPolicy(model, tokens_per_logit_chunk=tokens_per_logit_chunk)


def test_weights_of_other_shapes_are_refused_by_their_names(tmp_path: Path) -> None:
    config = json.loads((saved(qwen3(None), tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 64}))
    with refused(ModelError, str(tmp_path), "model.layers.0.mlp.down_proj.weight"):
        load_policy(tmp_path, dtype=torch.float32)


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_act": "nonsense"}, "nonsense"),
        ({"model_type": "nonsense"}, "nonsense"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
    ],
)
def test_configuration_that_no_learner_can_load_is_one_sentence(
    tmp_path: Path, changes: dict[str, object], facts: str
) -> None:
    config = json.loads((saved(qwen3(None), tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with refused(ModelError, str(tmp_path), facts) as caught:
        load_policy(tmp_path, dtype=torch.float32)
    assert "\n" not in str(caught.value)


def test_weights_that_are_cut_off_are_named(tmp_path: Path) -> None:
    weights = saved(qwen3(None), tmp_path) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with refused(ModelError, str(tmp_path), "model.safetensors"):
        load_policy(tmp_path, dtype=torch.float32)


def rows_of(*lengths: int) -> list[list[int]]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(VOCAB_SIZE, (n,), generator=generator).tolist() for n in lengths]


ROWS = rows_of(9, 17, 1, 6, 12)


def run_packed(policy: PackedPolicy, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Logprobs and entropies of all tokens but the first of each row."""
    starts = [0, *itertools.accumulate(len(row) for row in rows)]
    predicts = [i for a, b in itertools.pairwise(starts) for i in range(a, b - 1)]
    return policy(
        torch.tensor([[token for row in rows for token in row]]),
        torch.tensor([[place for row in rows for place in range(len(row))]]),
        tuple(len(row) for row in rows),
        torch.tensor(predicts, dtype=torch.int64),
    )


def run_eager(directory: Path, rows: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """The same by the full logits of one row after the other."""
    model = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()
    logprobs, entropies = [], []
    with torch.no_grad():
        for row in rows:
            logits = model(input_ids=torch.tensor([row])).logits[0]
            for place in range(1, len(row)):
                log_p = torch.log_softmax(logits[place - 1], dim=0)
                logprobs.append(log_p[row[place]])
                entropies.append(-(log_p.exp() * log_p).sum())
    return torch.stack(logprobs), torch.stack(entropies)


def assert_equals_eager(directory: Path) -> None:
    with torch.no_grad():
        found = run_packed(packed(directory), ROWS)

    torch.testing.assert_close(found, run_eager(directory, ROWS), **TOLERANCE)


@pytest.mark.parametrize("sliding_window", [None, 1, 4, 16, 40])
def test_logprobs_and_entropies_are_those_of_eager_attention(
    tmp_path: Path, sliding_window: int | None
) -> None:
    assert_equals_eager(saved(qwen3(sliding_window), tmp_path))


def test_an_output_head_of_its_own_is_used(tmp_path: Path) -> None:
    assert_equals_eager(saved(qwen3(None, tied=False), tmp_path))


def test_a_llama_is_as_good_as_a_qwen(tmp_path: Path) -> None:
    torch.manual_seed(1)
    assert_equals_eager(saved(LlamaForCausalLM(LlamaConfig(**SMALL)), tmp_path))


def test_a_gemma_2_without_caps_slides_in_every_other_layer(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = Gemma2Config(
        **SMALL,
        query_pre_attn_scalar=8,
        sliding_window=4,
        attn_logit_softcapping=None,
        final_logit_softcapping=None,
    )
    assert_equals_eager(saved(Gemma2ForCausalLM(config), tmp_path))


def test_absolute_positions_are_counted_from_the_start_of_each_row(tmp_path: Path) -> None:
    # Rotary ones would not notice: only their differences matter.
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=VOCAB_SIZE, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.2
    )
    assert_equals_eager(saved(GPT2LMHeadModel(config), tmp_path))


def test_a_mixture_of_experts_is_taken(tmp_path: Path) -> None:
    torch.manual_seed(1)
    config = Qwen3MoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16)
    assert_equals_eager(saved(Qwen3MoeForCausalLM(config), tmp_path))


@pytest.mark.parametrize("sliding_window", [None, 4])
def test_packing_changes_nothing(tmp_path: Path, sliding_window: int | None) -> None:
    policy = packed(saved(qwen3(sliding_window), tmp_path))

    with torch.no_grad():
        together = run_packed(policy, ROWS)
        alone = [run_packed(policy, [row]) for row in ROWS]
        reversed_rows = run_packed(policy, ROWS[::-1])

    joined = tuple(torch.cat(parts) for parts in zip(*alone, strict=True))
    torch.testing.assert_close(together, joined, **TOLERANCE)
    lengths = [len(row) - 1 for row in ROWS[::-1]]
    back = tuple(torch.cat(values.split(lengths)[::-1]) for values in reversed_rows)
    torch.testing.assert_close(together, back, **TOLERANCE)


@pytest.mark.parametrize("sliding_window", [None, 4, 9])
def test_other_tokens_in_the_other_rows_change_no_bit(
    tmp_path: Path, sliding_window: int | None
) -> None:
    policy = packed(saved(qwen3(sliding_window), tmp_path))
    junk = [[63] * 9, ROWS[1], [63], [0] * 6, [5] * 12]

    with torch.no_grad():
        clean, dirty = (run_packed(policy, rows) for rows in (ROWS, junk))

    own = slice(8, 24)
    assert torch.equal(clean[0][own], dirty[0][own])
    assert torch.equal(clean[1][own], dirty[1][own])


def test_gradients_are_those_of_the_full_logits(tmp_path: Path) -> None:
    directory = saved(qwen3(4), tmp_path)
    policy = packed(directory)
    eager = AutoModelForCausalLM.from_pretrained(directory, attn_implementation="eager").eval()

    logprobs, entropies = run_packed(policy, ROWS[:2])
    (logprobs.sum() + 0.3 * entropies.sum()).backward()
    for row in ROWS[:2]:
        log_p = eager(input_ids=torch.tensor([row])).logits[0, :-1].log_softmax(-1)
        of_tokens = log_p.gather(1, torch.tensor(row[1:])[:, None]).sum()
        (of_tokens - 0.3 * (log_p.exp() * log_p).sum()).backward()

    expected = {name: weight.grad for name, weight in eager.named_parameters()}
    found = {name: weight.grad for name, weight in policy.model.named_parameters()}
    # The embedding's gradient is the sum of its two uses, as input and as head.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_only_wanted_tokens_come_back_in_the_order_asked_for(tmp_path: Path) -> None:
    policy = packed(saved(qwen3(None), tmp_path))
    token_ids, places = torch.tensor([ROWS[1]]), torch.arange(17).view(1, -1)

    with torch.no_grad():
        every, _ = run_packed(policy, [ROWS[1]])
        some, _ = policy(token_ids, places, (17,), torch.tensor([11, 2]))
        none, _ = policy(token_ids, places, (17,), torch.tensor([], dtype=torch.int64))

    torch.testing.assert_close(some, every[[11, 2]])
    assert none.shape == (0,)


def test_bfloat16_weights_give_logprobs_near_those_of_float32(tmp_path: Path) -> None:
    build_tiny_model(tmp_path, seed=0)
    narrow = PackedPolicy(load_policy(tmp_path, dtype=torch.bfloat16), tokens_per_logit_chunk=1000)

    with torch.no_grad():
        found = run_packed(narrow, ROWS)
        expected = run_packed(packed(tmp_path), ROWS)

    # Eight bits through four layers: measured at most 0.016 nats.
    torch.testing.assert_close(found, expected, rtol=0, atol=0.05)


# --- what is refused ------------------------------------------------------------------------------


def test_capped_logits_are_refused(tmp_path: Path) -> None:
    config = Gemma2Config(
        **SMALL,
        query_pre_attn_scalar=8,
        attn_logit_softcapping=None,
        final_logit_softcapping=30.0,
    )

    with pytest.raises(ModelError, match="changes its logits"):
        packed(saved(Gemma2ForCausalLM(config), tmp_path))


def test_scaled_logits_are_refused(tmp_path: Path) -> None:
    config = GraniteConfig(**SMALL, logits_scaling=8.0)

    with pytest.raises(ModelError, match="changes its logits"):
        packed(saved(GraniteForCausalLM(config), tmp_path))


def test_capped_attention_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    config = Gemma2Config(**SMALL, query_pre_attn_scalar=8, final_logit_softcapping=None)

    with pytest.raises(ModelError, match="softcap"):
        packed(saved(Gemma2ForCausalLM(config), tmp_path))


def test_a_state_that_runs_through_the_sequences_is_refused(tmp_path: Path) -> None:
    config = Mamba2Config(**{**SMALL, "num_heads": 8}, state_size=8)

    with pytest.raises(ModelError, match="packed sequences"):
        packed(saved(Mamba2ForCausalLM(config), tmp_path))


def test_layers_without_attention_between_layers_with_it_are_refused(tmp_path: Path) -> None:
    config = Qwen3NextConfig(
        **SMALL,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=16,
        linear_num_key_heads=2,
        linear_num_value_heads=2,
        linear_key_head_dim=8,
        linear_value_head_dim=8,
    )

    with pytest.raises(ModelError, match="packed sequences"):
        packed(saved(Qwen3NextForCausalLM(config), tmp_path))


def test_a_token_without_an_embedding_is_no_reason_to_refuse(tmp_path: Path) -> None:
    model = qwen3(None)
    with torch.no_grad():
        model.get_input_embeddings().weight[0] = 0

    packed(saved(model, tmp_path))


def test_a_saved_policy_is_talked_to_as_it_was_trained(tmp_path: Path) -> None:
    start, target = tmp_path / "start", tmp_path / "saved"
    build_test_policy(start)
    own = read_chat_pieces(start)
    template = start / "chat_template.jinja"
    template.write_text(template.read_text().replace("message.content", "message.content | trim"))
    pieces = read_chat_pieces(start, "append_only")
    model = load_policy(start, dtype=torch.float32)
    save_policy(model, model.state_dict(), target, tokenizer_dir=start, pieces=pieces)
    assert read_chat_pieces(target) == pieces == own
