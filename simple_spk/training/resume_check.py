"""May a run go on in a folder? Only with the settings that it began with."""

from pathlib import Path

SETTINGS = "hyperparams.yaml"  # SpeechBrain's name

# What may differ when a run is taken up again; limit is that of the epoch counter.
FREE_TO_CHANGE = (
    *("number_of_epochs", "limit", "workers", "log_interval", "collapse_check_steps", "prepare"),
    *("ckpt_interval_steps", "ckpt_interval_minutes"),
)


def require_same_settings(output_folder: Path, settings: str) -> None:
    """Raise if a folder holds checkpoints of a run with settings that would train another model.

    ``settings`` is the text of the YAML file, all its references resolved, as the folder keeps it.
    """
    earlier = output_folder / SETTINGS
    if not earlier.is_file() or not any((output_folder / "checkpoints").glob("CKPT*")):
        return
    before = settings_lines(earlier.read_text("utf-8"))
    changed = [line for line in settings_lines(settings) if line not in before]
    if changed:
        raise ValueError(
            f"{output_folder} holds a run with other settings than {'; '.join(changed[:3])}: give "
            f"this one another --output_folder, or delete that folder"
        )


def settings_lines(yaml_text: str) -> list[str]:
    """The lines of a resolved YAML file that decide what is learned, without comments."""
    lines = [line.partition(" #")[0].strip() for line in yaml_text.splitlines()]
    return [
        line
        for line in lines
        if line and not line.startswith(("#", *(f"{key}:" for key in FREE_TO_CHANGE)))
    ]
