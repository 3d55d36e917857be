"""The attention lab: a page in the browser where a photograph becomes attention maps, masks and downloads."""
