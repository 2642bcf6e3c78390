"""What a training left in its folder: event files, training_status.json, checkpoints."""
