"""What one visitor may ask of the page, in one place; each limit is an option of the command."""

from dataclasses import dataclass

MEGABYTE = 1_000_000
SIZES = (32, 2048)
"""Least and greatest resolution, in pixels of the short side."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds that keep the server alive whatever is sent to it."""

    max_upload_mb: int = 25
    """Largest file that may be uploaded, in MB."""
    max_megapixels: int = 50
    """Largest photograph that is decoded, in millions of pixels."""
    max_patches: int = 8192
    """Most patches a photograph may make; every one of them is compared with every other."""
    max_memory_mb: int = 1000
    """Memory for photographs and what models made of them, in MB; what was used least recently is
    forgotten."""
    max_weights_mb: int = 2000
    """Memory for the weights of models, in MB; the one used least recently is loaded again when wanted."""
    max_waiting: int = 64
    """Most photographs that wait for the model; further ones are turned away."""
    max_frames: int = 120
    """Most frames of a clip that are used; what follows them is left out, and that is said."""
    max_clip_seconds: int = 10
    """Most seconds of a clip that are used."""
    max_frame_megapixels: int = 9
    """Largest frame of a clip that is decoded, in millions of pixels; 4K has 8.3."""
    max_clips_mb: int = 400
    """Memory for clips and the masks followed through them, in MB; the clip used longest ago is forgotten."""

    @property
    def max_upload_bytes(self) -> int:
        """Largest file that may be uploaded."""
        return self.max_upload_mb * MEGABYTE

    @property
    def max_pixels(self) -> int:
        """Largest photograph that is decoded."""
        return self.max_megapixels * MEGABYTE

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"--{name.replace('_', '-')} is {value}, expected at least 1")
