"""The answers of the service as pydantic models, made from the library's own result types."""

import inspect
from collections.abc import Sequence
from typing import Any, get_type_hints

from pydantic import BaseModel, Field, create_model

from simple_spk.inference.decisions import Candidate, Decision, Identification
from simple_spk.inference.diarization.conversation import Turn
from simple_spk.inference.speech_quality import RecordingQuality


def _model(kind: type, **more: Any) -> type[BaseModel]:
    """A model with the fields of a named tuple, and with others in addition or instead."""
    fields = get_type_hints(kind) | more
    text = inspect.cleandoc(kind.__doc__ or "")
    made: dict[str, Any] = {name: (hint, ...) for name, hint in fields.items()}
    return create_model(kind.__name__, __doc__=text, **made)


QualityAnswer: Any = _model(RecordingQuality, warnings=list[str])
DecisionAnswer: Any = _model(Decision, sureness=str, qualities=Sequence[Sequence[QualityAnswer]])
IdentificationAnswer: Any = _model(
    Identification,
    candidates=Sequence[_model(Candidate)],  # type: ignore[misc]
    qualities=Sequence[QualityAnswer],
)


class VoiceAnswer(BaseModel):
    """An enrolled voice, without its embedding."""

    name: str
    recordings: int
    seconds: float


class EmbeddingsAnswer(BaseModel):
    """Embeddings in the order of the recordings; those of other models are not comparable."""

    embeddings: list[list[float]]
    model: str = Field(description="fingerprint of the model")


class TalkTime(BaseModel):
    """How long, and how often, a speaker speaks."""

    speaker: str
    seconds: float
    turns: int


class ConversationAnswer(BaseModel):
    """Who speaks when: the JSON of simple-spk diarize."""

    recording: str
    seconds: float
    speech_detector: str
    overlap: str
    speakers: list[TalkTime]
    turns: list[_model(Turn)]  # type: ignore[valid-type]


class HealthAnswer(BaseModel):
    """Whether the service works, and how many requests wait."""

    status: str
    version: str
    model: str = Field(description="fingerprint of the model")
    waiting: int
    places: int
    needs_key: bool


class ErrorAnswer(BaseModel):
    """What is wrong with a request, and how to correct it."""

    detail: str
