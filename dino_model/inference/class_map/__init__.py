"""A map of classes: `layout` places, `names` names, `files` keeps the map, `command` is the command."""
