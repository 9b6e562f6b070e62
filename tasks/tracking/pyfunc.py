"""Registered models as MLflow models: what `mlflow.pyfunc.load_model` and `mlflow models serve` load.

Beside a version's run lies a small folder: an MLmodel file (signature, example, requirements) that names this module as
its loader, and the artifact's address and digest. The weights stay in the store: whoever loads the model fetches them
from there and compares them with the manifest. A version costs some 5 kB, where a logged copy would cost the model
once more; but it can be loaded only where the store can be read. Nothing is pickled.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gptcore.base.errors import InputError
from gptcore.base.files import read_object, write_json_atomic
from tasks.store.artifact import Artifact
from tasks.store.lineage import located, opened_model

if TYPE_CHECKING:
    import pandas as pd

_ARTIFACT = "artifact.json"
_EXAMPLE = "input_example.json"
_PACKAGES = (
    "gptmill",
    "torch",
    "numpy",
    "pyarrow",
    "fsspec",
    "s3fs",
    "tokenizers",
    "safetensors",
    "ftfy",
    "spacy",
    "mlflow",
)
"""What reads a model and its text."""


@dataclass(frozen=True)
class Interface:
    """How a model is called."""

    inputs: tuple[str, ...]
    """Columns of text, as the data names them."""
    outputs: Mapping[str, str]
    """Column -> "string" or "double"."""
    example: Mapping[str, str]
    """A row of input."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Name -> default, of what may be given beside the rows."""
    aliases: tuple[str, ...] = ()
    """Columns that may stand in the place of the required ones, each a text."""
    lists: tuple[str, ...] = ()
    """Columns of lists of texts that may stand in the place of several."""
    passed: tuple[str, ...] = ()
    """Columns of any kind that stand beside the answers as they are: MLflow hands over none that is not named."""


def write_mlmodel(folder: Path, artifact: Artifact, interface: Interface) -> None:
    """Write the MLflow model of an artifact of stage `pretrain` or `finetune` into a folder.

    Equal models give equal folders on the same installation.
    """
    from mlflow.models import Model, ModelSignature
    from mlflow.pyfunc import add_to_model
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    folder.mkdir(parents=True, exist_ok=True)
    write_json_atomic(folder / _ARTIFACT, {"stage": artifact.stage, "digest": artifact.digest, "url": artifact.url})
    rows = {"columns": list(interface.inputs), "data": [[interface.example[name] for name in interface.inputs]]}
    write_json_atomic(folder / _EXAMPLE, rows)
    write_json_atomic(folder / "serving_input_example.json", {"dataframe_split": rows})
    (folder / "requirements.txt").write_text("".join(f"{line}\n" for line in _requirements()), encoding="utf-8")
    environment = {
        "python": platform.python_version(),
        "build_dependencies": ["pip", "setuptools", "wheel"],
        "dependencies": ["-r requirements.txt"],
    }
    (folder / "python_env.yaml").write_text(json.dumps(environment), encoding="utf-8")  # JSON is YAML
    kinds = {float: "double", int: "long"}
    params = [ParamSpec(name, kinds[type(default)], default) for name, default in interface.params.items()]
    model = Model(
        signature=ModelSignature(
            Schema(_columns(interface)),
            Schema([ColSpec(kind, name) for name, kind in interface.outputs.items()]),
            ParamSchema(params) if params else None,  # type: ignore[arg-type]  # MLflow's own default
        ),
        saved_input_example_info={
            "artifact_path": _EXAMPLE,
            "serving_input_path": "serving_input_example.json",
            "type": "dataframe",
            "pandas_orient": "split",
        },
        model_uuid=artifact.digest[:32],
        utc_time_created="",
        metadata={"gptmill": f"{artifact.stage}/{artifact.digest}"},
    )
    add_to_model(  # type: ignore[no-untyped-call]
        model, loader_module=__name__, data=_ARTIFACT, python_env={"virtualenv": "python_env.yaml"}
    )
    model.save(str(folder / "MLmodel"))


def _columns(interface: Interface) -> list[Any]:
    """The input columns; where some may stand for others MLflow asks for none, and the model says what a row lacks.

    So it does of lists, of which MLflow would make texts, "None" where there is none.
    """
    from mlflow.types import ColSpec
    from mlflow.types.schema import AnyType, Array

    required = not interface.aliases and not interface.lists
    any_text = AnyType()  # type: ignore[no-untyped-call]
    texts = [ColSpec("string", name, required=required) for name in (*interface.inputs, *interface.aliases)]
    lists = [ColSpec(Array(any_text), name, required=False) for name in interface.lists]
    return texts + lists + [ColSpec(any_text, name, required=False) for name in interface.passed]


def _requirements() -> list[str]:
    lines = []
    for package in _PACKAGES:
        try:
            lines.append(f"{package}=={version(package).partition('+')[0]}")  # an index has no local versions
        except PackageNotFoundError:
            continue
    return lines


# --- loading ----------------------------------------------------------------------------------------------------------


def _load_pyfunc(path: str) -> Any:
    """MLflow's entry: the model behind the file that :func:`write_mlmodel` wrote.

    :raises InputError: the store cannot be read, or its bytes are not those of the digest.
    """
    record = read_object(path, "an artifact's stage, digest and url", {"stage": str, "digest": str, "url": str})
    artifact = located(Artifact(record["stage"], record["digest"], record["url"]))
    if artifact.stage == "finetune":
        return TaskPredictor(artifact)
    if artifact.stage == "pretrain":
        return Continuation(artifact)
    raise InputError(f"{path}: stage = {artifact.stage!r}, expected finetune or pretrain")


class TaskPredictor:
    """A fine-tuned model for tables: a column for each text of the task, a row for each question."""

    def __init__(self, artifact: Artifact) -> None:
        from gptcore.evaluation.predict import TaskModel

        self._model = TaskModel(*opened_model(artifact))

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Answer every row; texts beyond n_ctx are cut as in training, a row without a text is answered blank.

        :param model_input: the columns of the signature.
        :return: columns that are none of the task's texts, and, where a row is cut or blank, behind all others "note";
            "label" and "probability LABEL" of each label; of a graded task "score"; of questions about a passage
            "answer" and its place; of tagged words "tags", with a space between two, and "entities" as JSON.
        :raises MlflowException: a missing column, or a cell that is no text; names row and column.
        """
        import pandas as pd
        from mlflow.exceptions import MlflowException

        from gptcore.nlu.examples import Record
        from gptcore.nlu.forms import form_of
        from gptcore.nlu.own_rows import NOTES, asked_about, passed_on

        spec = self._model.spec
        if not len(model_input.columns):  # MLflow drops what it does not know, and with the last column the rows
            expected = (*spec.text_columns, *spec.choices)
            problem = "the table: found none of the model's columns"
            raise MlflowException.invalid_parameter_value(f"{problem}, expected {', '.join(expected)}")
        table = model_input.to_dict("records")
        plain = [{name: _plain(cell) for name, cell in row.items()} for row in table]
        try:
            records = [Record("the table", str(number), row, unit="row") for number, row in enumerate(plain, start=1)]
            asked = [(record, asked_about(spec, record)) for record in records]
            passed = [passed_on(spec, record) for record in records]
        except InputError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from None
        answers = [answer for _, answer in self._model.answered(asked, itemgetter(1))]
        notes = [answer.pop(NOTES[0], "") for answer in answers]
        cells = [own | form_of(spec).table_cells(spec, answer) for own, answer in zip(passed, answers, strict=True)]
        columns = None if answers else list(form_of(spec).signature(spec))  # of no rows nothing else would tell
        found = pd.DataFrame(cells, index=model_input.index, columns=columns)
        return found.assign(**{NOTES[0]: notes}) if any(notes) else found


def _plain(cell: Any) -> Any:
    """A cell as JSON would have it: a list in the place of an array, null in that of each kind of missing value."""
    import pandas as pd

    if isinstance(cell, dict):
        return {name: _plain(inner) for name, inner in cell.items()}
    plain = cell.tolist() if hasattr(cell, "tolist") else cell
    return None if not isinstance(plain, list) and pd.isna(plain) else plain


class Continuation:
    """A language model for tables: each prompt is continued."""

    def __init__(self, artifact: Artifact) -> None:
        from gptcore.machine.device import pick_device
        from gptcore.models.network import load_language_model

        folder, self._tokenizer = opened_model(artifact)
        self._model = load_language_model(str(folder)).to(pick_device(0)).eval()

    def predict(self, model_input: pd.DataFrame, params: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Continue the column "prompt".

        :param params: "max_tokens", "temperature", "top_k" (0: all), "top_p", "seed".
        :return: "continuation", a text a row.
        :raises InputError: a prompt without a word, or a setting out of range.
        """
        import pandas as pd

        from gptcore.evaluation.inference import continue_lines

        lines = (" ".join(str(prompt).split()).encode() for prompt in model_input["prompt"])
        answers = continue_lines(self._model, self._tokenizer, lines, name="prompt", **(params or {}))
        return pd.DataFrame({"continuation": [row["continuation"] for row in answers]}, index=model_input.index)
