"""What is learnt: losses, and each training objective with the data that it reads."""
