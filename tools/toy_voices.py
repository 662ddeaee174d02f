"""Synthetic voices: a source and a filter, each with its own larynx, tract and habits of speech.

What is said is drawn anew for every recording, and the channel and noise are drawn anew for every
session, so neither tells who speaks.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

# In practice single precision, which halves the time.
FloatArray = NDArray[np.floating[Any]]
ComplexArray = NDArray[np.complexfloating[Any, Any]]

SAMPLE_RATE = 16000
HOP_SAMPLES = 160
FRAME_SAMPLES = 2 * HOP_SAMPLES
TRACT_FFT_SAMPLES = 3 * HOP_SAMPLES  # Leaves room for the resonances to ring after the frame.
LONGEST_SAMPLES = 64000  # No recording is longer, so all of them share one length of transform.
REVERBERATION_SAMPLES = 6400
TRACT_FREQUENCIES_HERTZ = np.fft.rfftfreq(TRACT_FFT_SAMPLES, 1 / SAMPLE_RATE).astype(np.float32)
ROOM_FREQUENCIES_HERTZ = np.fft.rfftfreq(LONGEST_SAMPLES, 1 / SAMPLE_RATE).astype(np.float32)

NEUTRAL_FORMANTS_HERTZ = (500.0, 1500.0, 2500.0)
UPPER_FORMANTS_HERTZ = (3500.0, 4500.0, 5500.0)
BANDWIDTHS_HERTZ = (70.0, 90.0, 130.0, 200.0, 280.0, 400.0)
VOWELS_HERTZ = np.array(  # The first three formants of eight vowels, in a tract of neutral length.
    [
        [290, 410, 560, 690, 730, 570, 320, 500],
        [2250, 1950, 1780, 1600, 1120, 880, 950, 1450],
        [2950, 2550, 2480, 2420, 2480, 2450, 2280, 2450],
    ]
).T


@dataclass(frozen=True)
class Sound:
    """A steady stretch of speech; strengths are relative to the voicing of a loud vowel."""

    duration_seconds: float
    formants_hertz: tuple[float, ...] = NEUTRAL_FORMANTS_HERTZ
    voicing: float = 0.0
    aspiration: float = 0.0
    nasality: float = 0.0
    frication: float = 0.0
    noise_hertz: float = 3000.0
    noise_width_hertz: float = 1000.0
    pitch_semitones: float = 0.0


@dataclass(frozen=True)
class Speaker:
    """What all recordings of one voice have in common."""

    pitch_hertz: float
    pitch_range_semitones: float
    declination_semitones_per_second: float
    open_quotient: float
    closing_share: float
    tilt_decibels_per_octave: float
    breathiness: float
    jitter: float
    shimmer: float
    formant_scales: FloatArray  # (6,): the length of the tract times its individual shape.
    bandwidths_hertz: FloatArray  # (6,)
    vowel_accents: FloatArray  # (8, 3): factors on the shared vowel targets.
    vowel_spread: float
    nasality: float
    nasal_pole_hertz: float
    nasal_zero_hertz: float
    frication_gain: float
    frication_scale: float
    duration_scale: float
    pause_probability: float
    coarticulation_seconds: float


@dataclass(frozen=True)
class Session:
    """Where and with what some recordings were made; drawn without regard to the speaker."""

    room_response: ComplexArray  # (LONGEST_SAMPLES / 2 + 1,): channel and reverberation.
    noise_gains: FloatArray  # (LONGEST_SAMPLES / 2 + 1,)
    signal_to_noise_decibels: float
    level_decibels: float


LABIAL, ALVEOLAR = (300.0, 900.0, 2250.0), (320.0, 1750.0, 2650.0)
PALATAL, VELAR = (290.0, 2050.0, 2700.0), (310.0, 1900.0, 2250.0)
PUFF = Sound(0.03, voicing=0.1, aspiration=0.4)
# A consonant is one sound or several in turn: a plosive is a closure, a burst and maybe a puff.
CONSONANTS: tuple[tuple[Sound, ...], ...] = (
    (Sound(0.11, ALVEOLAR, frication=0.35, noise_hertz=6000, noise_width_hertz=1100),),
    (Sound(0.11, PALATAL, frication=0.35, noise_hertz=3300, noise_width_hertz=800),),
    (Sound(0.10, LABIAL, frication=0.1, noise_hertz=4500, noise_width_hertz=3000),),
    (Sound(0.08, ALVEOLAR, 0.4, frication=0.2, noise_hertz=6000, noise_width_hertz=1100),),
    (Sound(0.07, aspiration=0.5),),
    (Sound(0.06), Sound(0.016, LABIAL, 0, 0.3, 0, 0.35, 1000, 700), PUFF),
    (Sound(0.06), Sound(0.016, ALVEOLAR, 0, 0.3, 0, 0.5, 4400, 1200), PUFF),
    (Sound(0.06), Sound(0.024, VELAR, 0, 0.3, 0, 0.5, 2000, 500), PUFF),
    (Sound(0.06, LABIAL, 0.15), Sound(0.016, LABIAL, 0.3, 0, 0, 0.2, 900, 600)),
    (Sound(0.05, ALVEOLAR, 0.15), Sound(0.016, ALVEOLAR, 0.3, 0, 0, 0.3, 4000, 900)),
    (Sound(0.07, LABIAL, voicing=0.5, nasality=0.9),),
    (Sound(0.06, ALVEOLAR, voicing=0.5, nasality=0.9),),
    (Sound(0.06, (360.0, 1150.0, 2700.0), voicing=0.6),),
    (Sound(0.06, PALATAL, voicing=0.6),),
)


def generator_for(seed: int, purpose: str, speaker: int, item: int = 0) -> Generator:
    """A generator that depends on these values alone, so the order of the work does not matter."""
    purposes = ("speaker", "session", "recording", "trials")
    return np.random.default_rng([seed, purposes.index(purpose), speaker, item])


def draw_speaker(generator: Generator) -> Speaker:
    """A voice, with traits that are for the most part independent of each other.

    They are drawn uniformly: with few voices to learn from, nobody should be far from all others.
    """
    uniform = generator.uniform
    tract_scale = uniform(0.9, 1.24)
    # Short tracts tend to go with high voices, but the tie is loose, as it is in people.
    pitch_hertz = 145 * math.exp(2.0 * (tract_scale - 1.07) + uniform(-0.45, 0.45))
    nasal_pole_hertz = uniform(600, 1300)
    return Speaker(
        pitch_hertz=min(max(pitch_hertz, 75.0), 320.0),
        pitch_range_semitones=uniform(0.8, 4.0),
        declination_semitones_per_second=uniform(0.0, 3.0),
        open_quotient=uniform(0.4, 0.85),
        closing_share=uniform(0.15, 0.45),
        tilt_decibels_per_octave=uniform(-6.0, 1.5),
        breathiness=math.exp(uniform(math.log(0.01), math.log(0.4))),
        jitter=math.exp(uniform(math.log(0.003), math.log(0.04))),
        shimmer=uniform(0.02, 0.2),
        formant_scales=(tract_scale * np.exp(uniform(-0.2, 0.2, 6))).astype(np.float32),
        bandwidths_hertz=(np.exp(uniform(-0.8, 0.8, 6)) * BANDWIDTHS_HERTZ).astype(np.float32),
        vowel_accents=np.exp(uniform(-0.16, 0.16, VOWELS_HERTZ.shape)).astype(np.float32),
        vowel_spread=uniform(0.7, 1.15),
        nasality=uniform(0.0, 0.7),
        nasal_pole_hertz=nasal_pole_hertz,
        nasal_zero_hertz=nasal_pole_hertz * uniform(1.15, 1.7),
        frication_gain=math.exp(uniform(-0.6, 0.6)),
        frication_scale=math.exp(uniform(-0.25, 0.25)),
        duration_scale=uniform(0.75, 1.35),
        pause_probability=uniform(0.02, 0.15),
        coarticulation_seconds=uniform(0.04, 0.11),
    )


def draw_smooth_gains(generator: Generator, spread_decibels: float) -> FloatArray:
    """Factors that vary slowly and at random over ROOM_FREQUENCIES_HERTZ, of the same shape."""
    # The corners lie closer together at low frequencies, as do the bands of hearing.
    corners_hertz = 700 * np.expm1(np.linspace(0, np.log1p(SAMPLE_RATE / 2 / 700), 9))
    decibels = generator.normal(0, spread_decibels, corners_hertz.size)
    drawn = np.interp(ROOM_FREQUENCIES_HERTZ, corners_hertz, decibels).astype(np.float32)
    gains: FloatArray = 10 ** (drawn / 20)
    return gains


def draw_session(generator: Generator) -> Session:
    """A channel, a room, a noise and a level."""
    frequencies_hertz = np.maximum(ROOM_FREQUENCIES_HERTZ, 1)
    high_pass_hertz, low_pass_hertz = generator.uniform(40, 200), generator.uniform(5000, 9000)
    channel = draw_smooth_gains(generator, 1.2)
    channel /= np.sqrt(1 + (high_pass_hertz / frequencies_hertz) ** 4)
    channel /= np.sqrt(1 + (frequencies_hertz / low_pass_hertz) ** 6)

    time_seconds = np.arange(REVERBERATION_SAMPLES) / SAMPLE_RATE
    decay_seconds = generator.uniform(0.1, 0.4)  # Until the reverberation is down by 60 dB.
    echoes = generator.normal(size=time_seconds.size) * 10 ** (-3 * time_seconds / decay_seconds)
    echoes *= 10 ** (generator.uniform(-20, -7) / 20) / np.linalg.norm(echoes)
    echoes[0] += 1  # The direct sound.
    room_response = np.fft.rfft(echoes.astype(np.float32), LONGEST_SAMPLES) * channel

    noise_gains = (frequencies_hertz + 100) ** -generator.uniform(0.7, 1.2)
    return Session(
        room_response=room_response,
        noise_gains=noise_gains * draw_smooth_gains(generator, 1.2),
        signal_to_noise_decibels=generator.triangular(12, 25, 30),
        level_decibels=generator.uniform(-29, -23),
    )


def draw_syllable(speaker: Speaker, generator: Generator, pitch_semitones: float) -> list[Sound]:
    """A consonant, a vowel and sometimes another consonant, the way this speaker says them."""
    index = generator.integers(len(VOWELS_HERTZ))
    neutral_hertz = np.array(NEUTRAL_FORMANTS_HERTZ)
    offsets_hertz = VOWELS_HERTZ[index] * speaker.vowel_accents[index] - neutral_hertz
    formants_hertz = tuple(neutral_hertz + speaker.vowel_spread * offsets_hertz)
    vowel = Sound(generator.uniform(0.09, 0.24), formants_hertz, generator.uniform(0.7, 1.0))
    first, last = generator.integers(len(CONSONANTS), size=2)
    ending = CONSONANTS[last] if generator.random() < 0.25 else ()
    return [
        replace(
            sound,
            duration_seconds=sound.duration_seconds * speaker.duration_scale,
            frication=sound.frication * speaker.frication_gain,
            noise_hertz=sound.noise_hertz * speaker.frication_scale,
            pitch_semitones=pitch_semitones,
        )
        for sound in (*CONSONANTS[first], vowel, *ending)
    ]


def draw_utterance(speaker: Speaker, generator: Generator) -> list[Sound]:
    """Random syllables in phrases between pauses, about 2.5 to 4 seconds in all."""
    length_seconds = generator.uniform(2.2, 3.3)
    mood_semitones = generator.normal(0, 0.6)
    sounds = [Sound(generator.uniform(0.1, 0.25))]
    spoken_seconds, phrase_seconds = 0.0, 0.0
    while spoken_seconds < length_seconds:
        if phrase_seconds > 0.5 and generator.random() < speaker.pause_probability:
            added = [Sound(generator.uniform(0.12, 0.4))]
            phrase_seconds = 0.0
        else:
            pitch_semitones = mood_semitones + generator.normal(0, speaker.pitch_range_semitones)
            pitch_semitones += 2 - speaker.declination_semitones_per_second * phrase_seconds
            added = draw_syllable(speaker, generator, pitch_semitones)
            phrase_seconds += sum(sound.duration_seconds for sound in added)
        spoken_seconds += sum(sound.duration_seconds for sound in added)
        sounds += added
    return [*sounds, Sound(generator.uniform(0.05, 0.2))]


def smooth(track: FloatArray, width_seconds: float) -> FloatArray:
    """The weighted moving average of a track (frames,), of the same shape."""
    half_width = max(1, round(width_seconds * SAMPLE_RATE / HOP_SAMPLES / 2))
    weights = np.hanning(2 * half_width + 3)[1:-1].astype(np.float32)
    padded = np.pad(track, half_width, mode="edge")
    return np.convolve(padded, weights / weights.sum(), mode="valid")


def per_sample(track: FloatArray) -> FloatArray:
    """A track (frames,) with straight lines between its frames, shape (frames * HOP_SAMPLES,)."""
    ramp = np.arange(HOP_SAMPLES, dtype=np.float32) / HOP_SAMPLES
    steps = np.diff(track, append=track[-1])
    return (track[:, None] + steps[:, None] * ramp).reshape(-1)


def draw_source(
    speaker: Speaker,
    generator: Generator,
    voicing: FloatArray,
    aspiration: FloatArray,
    pitch_semitones: FloatArray,
) -> FloatArray:
    """The change of the air flow in the larynx, shape (samples,), from tracks of shape (frames,).

    It is a train of pulses with jitter and shimmer, and noise from the air that flows.
    """
    pitch_hertz = per_sample(speaker.pitch_hertz * 2 ** (pitch_semitones / 12))
    even_cycles = np.cumsum(pitch_hertz, dtype=np.float64) / SAMPLE_RATE
    starts = np.arange(int(even_cycles[-1]) + 2)
    # Jitter moves the start of a cycle by part of a cycle; the limits keep the starts in order.
    jitter = np.clip(generator.normal(0, speaker.jitter, starts.size), -0.2, 0.2)
    cycles = np.interp(even_cycles, starts, starts + 1 + jitter)
    cycle_index = cycles.astype(np.int64)
    shimmer = np.clip(generator.normal(0, speaker.shimmer, starts.size + 2), -0.6, 0.6)

    phase = (cycles - cycle_index).astype(np.float32) / speaker.open_quotient
    opening_share = 1 - speaker.closing_share
    opening = 0.5 - 0.5 * np.cos(np.pi / opening_share * phase)
    closing = np.cos(0.5 * np.pi / speaker.closing_share * (phase - opening_share))
    flow = np.where(phase < opening_share, opening, np.where(phase < 1, closing, 0))
    pulses = np.diff(flow, prepend=flow[0]) * (1 + shimmer.astype(np.float32))[cycle_index]
    pulses *= 0.1 / np.std(pulses)

    voiced_gain = per_sample(voicing)
    breath_gain = speaker.breathiness * voiced_gain * (0.3 + flow) + 0.3 * per_sample(aspiration)
    breath = 0.1 * breath_gain * generator.standard_normal(flow.size, dtype=np.float32)
    return pulses * voiced_gain + breath


def damping(center_hertz: Any, bandwidth_hertz: float) -> ComplexArray:
    """What a resonance divides a spectrum by; centers (frames, 1) give (frames, bins)."""
    frequencies_hertz = TRACT_FREQUENCIES_HERTZ
    loss = np.complex64(1j * bandwidth_hertz) * frequencies_hertz
    inverse = 1 / np.square(center_hertz, dtype=np.float32)
    result: ComplexArray = 1 - (frequencies_hertz**2 - loss) * inverse
    return result


def tract_response(
    speaker: Speaker, formants_hertz: list[FloatArray], nasality: FloatArray
) -> ComplexArray:
    """The response of the vocal tract (frames, bins), from tracks of shape (frames,)."""
    octaves = np.log2(np.maximum(TRACT_FREQUENCIES_HERTZ, 500) / 500)
    fixed = (10 ** (-speaker.tilt_decibels_per_octave * octaves / 20)).astype(np.complex64)
    scales, bandwidths_hertz = speaker.formant_scales, speaker.bandwidths_hertz.tolist()
    for index, center_hertz in enumerate(UPPER_FORMANTS_HERTZ, start=3):
        fixed /= damping(center_hertz * scales[index], bandwidths_hertz[index])
    # The nose adds a pole and a zero, which count as far as the way to it is open.
    nose = damping(speaker.nasal_zero_hertz, 120) / damping(speaker.nasal_pole_hertz, 120)
    openness = np.minimum(speaker.nasality + nasality, 1)[:, None]
    response: ComplexArray = fixed + openness * (fixed * (nose - 1))
    # Dividing complex numbers takes long, so it is done once, by the product.
    total = damping(formants_hertz[0][:, None] * scales[0], bandwidths_hertz[0])
    for index in (1, 2):
        total *= damping(formants_hertz[index][:, None] * scales[index], bandwidths_hertz[index])
    response /= total
    return response


def frame_spectra(signal: FloatArray, chosen: Any = slice(None)) -> ComplexArray:
    """Spectra (chosen frames, bins) of windowed frames, all of which add up to the signal."""
    padded = np.pad(signal, (0, HOP_SAMPLES))
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME_SAMPLES)[::HOP_SAMPLES]
    window = np.hanning(FRAME_SAMPLES + 1)[:-1].astype(np.float32)
    return np.fft.rfft(frames[chosen] * window, TRACT_FFT_SAMPLES)


def overlap_add(spectra: ComplexArray) -> FloatArray:
    """The signal (samples,) made of frames with these spectra (frames, bins)."""
    blocks = np.fft.irfft(spectra).reshape(len(spectra), -1, HOP_SAMPLES)
    signal = np.zeros((len(spectra) + blocks.shape[1] - 1, HOP_SAMPLES), dtype=np.float32)
    for index in range(blocks.shape[1]):
        signal[index : index + len(spectra)] += blocks[:, index]
    return signal.reshape(-1)


def speak(speaker: Speaker, generator: Generator) -> FloatArray:
    """A clean recording of a voice, shape (samples,)."""
    sounds = draw_utterance(speaker, generator)
    frame_seconds = HOP_SAMPLES / SAMPLE_RATE
    counts = [max(1, round(sound.duration_seconds / frame_seconds)) for sound in sounds]
    # The last sounds ring on for as long as one transform, which counts as well.
    limit = (LONGEST_SAMPLES - TRACT_FFT_SAMPLES) // HOP_SAMPLES

    def track(name: str) -> FloatArray:
        values = np.array([getattr(sound, name) for sound in sounds], dtype=np.float32)
        return np.repeat(values, counts, axis=0)[:limit]

    voicing, aspiration = smooth(track("voicing"), 0.025), smooth(track("aspiration"), 0.025)
    pitch_semitones = smooth(track("pitch_semitones"), 0.15)
    source = draw_source(speaker, generator, voicing, aspiration, pitch_semitones)
    width_seconds = speaker.coarticulation_seconds
    formants_hertz = [smooth(formant, width_seconds) for formant in track("formants_hertz").T]
    nasality = smooth(track("nasality"), 0.06)
    spectra = frame_spectra(source) * tract_response(speaker, formants_hertz, nasality)

    frication = smooth(track("frication"), 0.025)
    hissing = frication > 0  # Few frames are, so leaving out the others saves time.
    distances_hertz = TRACT_FREQUENCIES_HERTZ - track("noise_hertz")[hissing, None]
    color = np.exp(-0.5 * (distances_hertz / track("noise_width_hertz")[hissing, None]) ** 2)
    noise = 0.1 * generator.standard_normal(source.size, dtype=np.float32)
    spectra[hissing] += frame_spectra(noise, hissing) * color * frication[hissing, None]
    return overlap_add(spectra)


def record(speech: FloatArray, session: Session, generator: Generator) -> NDArray[np.int16]:
    """The speech as it arrives in a session, with its noise, shape (samples,)."""
    heard = np.fft.rfft(speech, LONGEST_SAMPLES) * session.room_response
    white = generator.standard_normal(2 * heard.size, dtype=np.float32)
    noise = white.view(np.complex64) * session.noise_gains
    # The noise lasts as long as the transform, but the speech only as long as the recording.
    ratio = np.linalg.norm(heard) / np.linalg.norm(noise) * (LONGEST_SAMPLES / speech.size) ** 0.5
    noise *= ratio * 10 ** (-session.signal_to_noise_decibels / 20)
    mixed = np.fft.irfft(heard + noise)[: speech.size]
    gain = 10 ** (session.level_decibels / 20) / np.std(mixed)
    gain = min(gain, 0.95 / np.max(np.abs(mixed)))  # Rather softer than clipped.
    samples: NDArray[np.int16] = np.rint(mixed * gain * 32767).astype(np.int16)
    return samples
