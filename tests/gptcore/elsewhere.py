"""A process that has transformers and nothing of ours: it loads exported folders, and answers what a file asks of each.

Reads a JSON list of requests {"folder", "auto", "rows", "ids", "texts" or "readme"}; writes a JSON list of answers, in
the same order.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import sys
from pathlib import Path


def forget_ours() -> None:
    """Take what leads to this project out of the process, whichever way it is installed."""
    sys.path[:] = [place for place in sys.path if not Path(place or ".", "gptcore").exists()]
    sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in str(finder)]
    assert importlib.util.find_spec("gptcore") is None


def answer(request):
    import torch
    import transformers

    if "readme" in request:
        os.chdir(request["folder"])
        (code,) = re.findall("```python\n(.*?)```", Path("README.md").read_text(), re.DOTALL)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(code, {})
        return said.getvalue()

    folder, auto = request["folder"], f"AutoModel{request['auto']}"
    model, said = getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True, output_loading_info=True)
    assert not said["missing_keys"], said
    assert not said["unexpected_keys"], said
    model.eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    if "texts" in request:
        return {"ids": [tokenizer.encode(text, add_special_tokens=False) for text in request["texts"]]}
    if "ids" in request:
        given = {name: torch.tensor(value) for name, value in request["ids"].items()}
        with torch.no_grad():
            found = model(**given)
            said = {name: found[name].float().tolist() for name in found if "logits" in name}
            if request.get("generates"):
                said["text"] = model.generate(**given, max_new_tokens=request["generates"], do_sample=False).tolist()
        return said
    if request["auto"] == "ForMultipleChoice":
        answers = []
        for first, choices in request["rows"]:
            tokens = tokenizer([first] * len(choices), choices, padding=True, return_tensors="pt")
            with torch.no_grad():
                logits = model(**{name: part[None] for name, part in tokens.items()}).logits
            answers.append(logits.softmax(-1)[0].tolist())
        return answers
    classify = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    found = classify(request["rows"], top_k=None, batch_size=2, truncation=request["cut"])
    return [{label["label"]: label["score"] for label in row} for row in found]


if __name__ == "__main__":
    forget_ours()
    asked, told = map(Path.absolute, map(Path, sys.argv[1:]))
    told.write_text(json.dumps([answer(request) for request in json.loads(asked.read_text())]))
