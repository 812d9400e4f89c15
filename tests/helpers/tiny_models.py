"""Tiny models with random weights, saved like folders of the hub, for tests of real towers and tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPModel,
    CLIPTokenizer,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipModel,
)

from ostta.backbones.embedded.stem import Stem

IMAGE_SIZE = 32
LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOWER = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
WIDTH = 24


def tiny_clip(folder: Path, seed: int = 0, *, legacy_end: bool = False) -> Path:
    """Save a CLIP model like those of OpenAI. `legacy_end` writes the `eos_token_id` 2 of old configurations."""
    model, tokenizer = _clip_model(seed)
    if legacy_end:
        model.config.text_config.eos_token_id = 2
    processor = {
        "crop_size": IMAGE_SIZE, "do_center_crop": True, "do_normalize": True, "do_resize": True,
        "feature_extractor_type": "CLIPFeatureExtractor", "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711], "resample": 3, "size": IMAGE_SIZE,
    }  # fmt: skip
    return _save(folder, model, tokenizer, processor)


def tiny_siglip(folder: Path, seed: int = 0) -> Path:
    """Save a SigLIP model.

    Its unigram tokenizer lowers case and strips punctuation; the padding token is the end token.
    """
    pieces = [("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), *((letter, -3.0) for letter in LETTERS), ("▁photo", -1.0)]
    backend = Tokenizer(models.Unigram(pieces, unk_id=1))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Lowercase(), normalizers.Replace(Regex(r"[!-/:-@\[-`{-~]"), ""), normalizers.Strip()]
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 0)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="</s>", pad_token="</s>", unk_token="<unk>",
        model_max_length=64, model_input_names=["input_ids"],
    )  # fmt: skip
    processor = {
        "do_normalize": True, "do_rescale": True, "do_resize": True, "image_mean": [0.5, 0.5, 0.5],
        "image_processor_type": "SiglipImageProcessor", "image_std": [0.5, 0.5, 0.5], "resample": 3,
        "rescale_factor": 1 / 255, "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
    }  # fmt: skip
    saved = _save(folder, _siglip_model(len(pieces), seed), tokenizer, processor)
    _edit(saved / "tokenizer_config.json", tokenizer_class="SiglipTokenizer")
    return saved


def tiny_siglip2(folder: Path, seed: int = 0) -> Path:
    """Save a SigLIP 2 model of fixed resolution, whose `model_type` is also "siglip".

    Its tokenizer, that of Gemma, keeps case.
    """
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>", "▁", *(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS]
    tokens += LETTERS.upper()
    backend = Tokenizer(
        models.BPE({token: index for index, token in enumerate(tokens)}, [], unk_token="<unk>", byte_fallback=True)
    )
    backend.normalizer = normalizers.Replace(" ", "▁")
    backend.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 1)])
    # The published file bakes the padding in, and a truncation that would cut a long name without a word.
    backend.enable_padding(length=64, pad_id=0, pad_token="<pad>")
    backend.enable_truncation(64)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>", bos_token="<bos>", unk_token="<unk>",
        model_max_length=64, model_input_names=["input_ids"],
    )  # fmt: skip
    processor = {
        "do_convert_rgb": None, "do_normalize": True, "do_rescale": True, "do_resize": True,
        "image_mean": [0.5, 0.5, 0.5],
        "image_processor_type": "SiglipImageProcessor", "image_std": [0.5, 0.5, 0.5], "resample": 2,
        "rescale_factor": 1 / 255, "size": {"height": IMAGE_SIZE, "width": IMAGE_SIZE},
    }  # fmt: skip
    saved = _save(folder, _siglip_model(len(tokens), seed), tokenizer, processor)
    _edit(saved / "tokenizer_config.json", tokenizer_class="GemmaTokenizer", add_bos_token=False, add_eos_token=True)
    return saved


def tiny_embedded(folder: Path, seed: int = 0) -> Path:
    """Save a model as `tools/train_embedded.py export` does: in half precision, with a convolutional stem."""
    model, tokenizer = _clip_model(seed)
    model.vision_model.embeddings.patch_embedding = Stem(model.config.vision_config.hidden_size)
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_file(
        {name: weight.half().contiguous() for name, weight in model.state_dict().items()}, folder / "model.safetensors"
    )
    (folder / "classes.json").write_text(json.dumps(["cat", "pickup truck"]))
    return folder


def _clip_model(seed: int) -> tuple[CLIPModel, CLIPTokenizer]:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(letter + "</w>" for letter in alphabet), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={token: index for index, token in enumerate(tokens)}, merges=[], model_max_length=77
    )
    text = {
        **TOWER, "vocab_size": len(tokens), "max_position_embeddings": 77, "bos_token_id": len(tokens) - 2,
        "eos_token_id": len(tokens) - 1, "pad_token_id": len(tokens) - 1, "projection_dim": WIDTH,
    }  # fmt: skip
    vision = {**TOWER, "hidden_size": 48, "image_size": IMAGE_SIZE, "patch_size": 8, "projection_dim": WIDTH}
    torch.manual_seed(seed)
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=WIDTH)), tokenizer


def _siglip_model(vocabulary: int, seed: int) -> SiglipModel:
    text = {**TOWER, "vocab_size": vocabulary, "max_position_embeddings": 64, "projection_size": 32}
    text |= {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    vision = {**TOWER, "image_size": IMAGE_SIZE, "patch_size": 8}
    torch.manual_seed(seed)
    return SiglipModel(SiglipConfig(text_config=text, vision_config=vision))


def _save(
    folder: Path, model: CLIPModel | SiglipModel, tokenizer: PreTrainedTokenizerFast, processor: dict[str, object]
) -> Path:
    # Freshly made towers say nearly the same about every input; stronger weights make classes and images differ.
    with torch.no_grad():
        for name, weight in (*model.text_model.named_parameters(), *model.vision_model.named_parameters()):
            if weight.ndim > 1:
                weight.mul_(20 if "embedding" in name else 8)
        model.logit_scale.fill_(4.6)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def _edit(file: Path, **changes: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))
