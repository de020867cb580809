"""The small policy: a random model of Qwen3's architecture, and a tokenizer made for its games.

Nothing is downloaded. The result is an ordinary Hugging Face model directory, so that any other
causal language model takes the same code path.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from cast_ray.config.pretrained import SMALL_POLICY_KEY
from cast_ray.config.train import PolicyConfig
from cast_ray.rollout.chat_template import CHATML
from cast_ray.runs.directories import save_refusals_named

END_OF_TURN = "<|im_end|>"
START_OF_TURN = "<|im_start|>"
PADDING = "<|endoftext|>"

# The punctuation of sentences and coordinates, which may be one token with its spaces: ") (".
_BETWEEN_WORDS = " ,:()"


def _pieces(cells: str) -> str:
    """Return the expression whose matches may become one token each.

    They are: a run of backticks; a letter in a run of cells; a phrase with the punctuation after
    it; a capital that no small letter follows; a digit; a line break; what separates words; any
    other symbol. Capitals, digits and symbols are separate so that "PX" or ".2" in a board are two
    cells; phrases are one piece because attention over a game's history costs the square of its
    tokens.

    Args:
        cells: the characters of boards. Small letters and ``_BETWEEN_WORDS`` among them are
            separate too: the letters where an entire run is cells ("x..x", not "box").
    """
    letters = "".join(sorted(cell for cell in set(cells) if "a" <= cell <= "z"))
    between = "".join(symbol for symbol in _BETWEEN_WORDS if symbol not in cells)
    alternatives = [
        "`+",
        rf"[{letters}A-Z](?=[{letters}A-Z]*(?![a-z]))" if letters else "",
        r"[A-Z]?[a-z]+(?:[ ,]+[a-z]+)*[:.,]? ?\(?",
        "[A-Z](?![a-z])",
        "[0-9]",
        r"\n" if ")" in cells else r"\)?\n",
        rf"[{between}]+" if between else "",
        r"[^A-Za-z0-9`\n]",
    ]
    return "|".join(filter(None, alternatives))


def build_tokenizer(
    corpus: Sequence[str], *, cells: str, vocab_size: int
) -> PreTrainedTokenizerFast:
    """Return a lossless byte-level tokenizer where every board cell is one token.

    Args:
        corpus: texts of the games; frequent words become single tokens.
        cells: the characters of their boards, in any order and number.
        vocab_size: most entries; the 256 bytes and 3 special tokens are always among them.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_pieces(cells)), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PADDING, START_OF_TURN, END_OF_TURN],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END_OF_TURN, pad_token=PADDING
    )
    fast.chat_template = CHATML
    return fast


def build_small_policy(
    directory: Path,
    shape: PolicyConfig,
    *,
    corpus: Sequence[str],
    cells: str,
    max_position_embeddings: int,
    seed: int,
) -> int:
    """Write a randomly initialised Qwen3 model directory; return its number of parameters.

    Corpus and cells are those of ``build_tokenizer``.
    """
    # Imported here: torch takes 2 s and 200 MB, which reading a tokenizer does not need.
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    tokenizer = build_tokenizer(corpus, cells=cells, vocab_size=shape.vocab_size)
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=shape.vocab_size,
            hidden_size=shape.hidden_size,
            intermediate_size=shape.intermediate_size,
            num_hidden_layers=shape.num_layers,
            num_attention_heads=shape.num_heads,
            num_key_value_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            max_position_embeddings=max_position_embeddings,
            use_sliding_window=shape.sliding_window > 0,
            sliding_window=shape.sliding_window or None,
            max_window_layers=0,  # all layers slide: vLLM supports all or none
            tie_word_embeddings=True,
            # The usual 0.02 suits wide models: at a width of 128 the policy then stays at chance
            # for hundreds of supervised updates; with this value it takes fifty.
            initializer_range=shape.hidden_size**-0.5,
            eos_token_id=tokenizer.get_vocab()[END_OF_TURN],
            pad_token_id=tokenizer.get_vocab()[PADDING],
            bos_token_id=None,
        )
    )
    setattr(model.config, SMALL_POLICY_KEY, True)
    with save_refusals_named(directory):
        model.save_pretrained(directory)
        tokenizer.save_pretrained(directory)
    return sum(parameter.numel() for parameter in model.parameters())
