"""The Python side of gipo: starts runs of the trainer, reads what they wrote and draws it."""
