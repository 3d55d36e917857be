"""Scripts for maintainers: release of the embedded model."""
