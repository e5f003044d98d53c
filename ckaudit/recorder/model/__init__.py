"""What is kept of the model between steps: its table of tensors, its gradients, its optimizers, its first weights."""
