"""Cannot be imported."""

1 / 0
