"""The README.md of a model folder, for those who find one and wonder what it is."""

import hashlib
from typing import Any

from simple_spk import __version__
from simple_spk.model import Model

CARD = """# A speaker-verification model

Tells whether recordings of speech have the same speaker. Made with simple_spk {version}.

| | |
|---|---|
| encoder | {encoder}, {parameters:,} parameters |
| embedding | {dimension} numbers |
| input | speech at {sample_rate} Hz, {num_mels} mel bands |
| score | {similarity}{threshold} |
| probabilities | {probabilities} |

## Use

```python
from simple_spk import Extractor

extractor = Extractor.load("this folder")
print(extractor.verify("one.wav", "other.wav"))
```

```bash
simple-spk verify --model THIS_FOLDER one.wav other.wav
```

## Training data

{training_data}

## Figures

No figures are stated. `simple-spk evaluate` measures error rates on a trial list.

Files: `model.safetensors` (weights), `config.yaml` (plain data). Loading executes nothing of them.
"""
# The last line, which no page shows; with a hash of all before it, so that edited cards are told.
MARK = "<!-- written by simple_spk itself: {digest} -->\n"


def is_automatic(card: str) -> bool:
    """Whether ``default_card`` wrote a card, of whatever model and version, and nobody since."""
    lines = card.splitlines(keepends=True)
    return bool(lines) and lines[-1] == _mark("".join(lines[:-1]))


def _mark(text: str) -> str:
    """The line that ends the card with this text."""
    return MARK.format(digest=hashlib.sha256(text.encode()).hexdigest())


def default_card(model: Model) -> str:
    """A model card of what the model itself tells, and no promises."""
    encoder: Any = model.encoder
    calibration = model.calibration
    text = CARD.format(
        version=__version__,
        encoder=type(encoder).__name__,
        parameters=sum(parameter.numel() for parameter in encoder.parameters()),
        dimension=encoder.arguments.get("embedding_dim", "some"),
        sample_rate=model.front_end.sample_rate,
        num_mels=model.front_end.num_mels,
        similarity=type(model.similarity).__name__,
        threshold="" if model.threshold is None else f", accepting from {model.threshold:.4g}",
        probabilities="none: it is not calibrated"
        if calibration is None
        else f"calibrated on {calibration.trained_on or 'a list without a name'}",
        training_data=model.training_data or "Not stated.",
    )
    return text + _mark(text)
