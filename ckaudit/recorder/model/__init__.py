"""The state kept of the model between steps: tensor table, gradients, optimizers, initial weights."""
