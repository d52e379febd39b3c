"""`jaxsif doctor`: facts of the login node, of each node and of each task, and checks of them."""
