"""Settings of a training: recipes, their checks, and the values of every step."""
