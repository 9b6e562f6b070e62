"""What a process runs on: device, other processes of the same training, random states, parents and signals."""
