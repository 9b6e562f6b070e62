"""One module a stage: fingerprint, look in the store, run gptcore, commit, track. `stage.py` is what they share."""
