"""Upper bounds on what one client may ask of the app; each limit is an option of the command."""

from dataclasses import dataclass

MEGABYTE = 1_000_000
SIZES = (32, 2048)
"""Smallest and largest resolution: pixels of the short side."""
RESOLUTIONS = (224, 336, 480, 640)
"""Resolutions that the page offers."""


@dataclass(frozen=True)
class Limits:
    """Upper bounds that keep the server alive under any input."""

    max_upload_mb: int = 25
    """Largest file that may be uploaded, in MB."""
    max_megapixels: int = 50
    """Largest image that is decoded, in millions of pixels."""
    max_patches: int = 8192
    """Most patches of an image; attention compares all pairs of patches."""
    max_memory_mb: int = 1000
    """Memory for images and their encodings, in MB. The least recently used are dropped first."""
    max_weights_mb: int = 2000
    """Memory for the weights of models, in MB. The least recently used model is dropped first."""
    max_waiting: int = 64
    """Requests that wait for the model; beyond them, each client may have one waiting."""
    max_frames: int = 120
    """Most frames of a clip that are used; the rest is left out with a note."""
    max_clip_seconds: int = 10
    """Most seconds of a clip that are used."""
    max_frame_megapixels: int = 9
    """Largest frame of a clip that is decoded, in millions of pixels; 4K has 8.3."""
    max_clips_mb: int = 400
    """Memory for clips and their masks, in MB. The least recently used are dropped first."""
    max_disk_mb: int = 1000
    """Disk space for uploaded files, in MB. The oldest are deleted first."""
    max_requests_per_address: int = 400
    """Most HTTP requests of one address that are answered at the same time."""
    max_calls_per_address: int = 8
    """Most calls of the API outside of Gradio's queue, /run and /api, that one address may have under way."""

    @property
    def max_upload_bytes(self) -> int:
        """Largest file that may be uploaded."""
        return self.max_upload_mb * MEGABYTE

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"--{name.replace('_', '-')} is {value}, expected at least 1")
