"""What one paper, one lecture's system or one analysis needs alone: a room a system, and the core imports none."""
