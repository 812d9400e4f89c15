"""The embedded model's tokenizer: a small byte-level BPE in CLIP's format.

The merges are learnt from the captions that the model is trained on, so each of its class names is a few tokens at most
and anything else falls back to pieces, in the end to bytes. End of text has the highest id: CLIP's text tower, in the
form `transformers` keeps for old checkpoints, pools at the highest id.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import CLIPTokenizer

START, END = "<|startoftext|>", "<|endoftext|>"


def train_tokenizer(sentences: Iterable[str], vocabulary: int, length: int) -> CLIPTokenizer:
    """A `CLIPTokenizer` with at most `vocabulary` entries, learnt from `sentences`; deterministic."""
    raw = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    raw.normalizer = normalizers.Lowercase()
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    words = [word for sentence in sentences for word in sentence.lower().split()]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    raw.train_from_iterator(
        words,
        trainers.BpeTrainer(
            vocab_size=vocabulary - len(alphabet) - 2,
            initial_alphabet=alphabet,
            end_of_word_suffix="</w>",
            show_progress=False,
        ),
    )
    merges = [tuple(pair) for pair in json.loads(raw.to_str())["model"]["merges"]]
    tokens = alphabet + [letter + "</w>" for letter in alphabet]
    tokens += [token for token in ("".join(pair) for pair in merges) if token not in set(tokens)]
    table = {token: index for index, token in enumerate(dict.fromkeys([*tokens, START, END]))}
    return CLIPTokenizer(vocab=table, merges=merges, model_max_length=length)
