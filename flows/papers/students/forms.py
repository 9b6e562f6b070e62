"""The forms of students: a model that learns from a teacher, and analyses that compare several."""

from __future__ import annotations

import dataclasses
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from flows.forms.fields import Form, InheritedPresetName, TaskChoice, field
from flows.forms.parameters import AnalysisParameters
from flows.forms.settings import Chosen, inherited
from gptcore.base.errors import InputError, require
from gptcore.base.settings import replace_settings
from gptcore.config import NetworkConfig, Preset, network_config, preset_named
from gptcore.config.distillation import check_teacher, student_of
from gptcore.families import FAMILIES, shape_settings, students

if TYPE_CHECKING:
    from flows.papers.students.checks import Comparison, DistilRequest
    from tasks.store.store import Store

StudentName = StrEnum("StudentName", {name: name for name in students()})  # type: ignore[misc]  # known at run time


class StudentsParameters(AnalysisParameters):
    """A teacher and its students, from the artifacts of a pipeline; what is missing is made."""

    preset: InheritedPresetName = field("students-preset", 0)  # type: ignore[assignment]  # a choice more

    def resolve(self, store: Store) -> Comparison:
        from flows.papers.students.checks import comparison_of, students_of
        from gptcore.models.onnx import require_onnx

        require_onnx("analysis students")  # their speed is measured
        return comparison_of(store, self, students_of)


class DistillationParameters(StudentsParameters):
    """Students whose loss has one part less, from the artifacts of a pipeline; what is missing is made."""

    def resolve(self, store: Store) -> Comparison:
        from flows.papers.students.checks import VARIED, ablations_of, comparison_of

        return comparison_of(store, self, ablations_of, VARIED)


class DistilParameters(Form):
    """A student of a model that is there, on the text that the model was made from, and both on the tasks."""

    preset: InheritedPresetName = field("distil-preset", 0)
    teacher: str = field("distil-teacher", 1)
    family: StudentName = field("distil-family", 2)
    layers: int = field("distil-layers", 3)
    store: str = field("store", 4)
    corpus: str = field("distil-corpus", 5)
    datasets: str = field("twelve-datasets", 6)
    tasks: list[TaskChoice] = field("tasks", 7)
    seeds: int = field("seeds", 8)
    overrides: dict[str, Any] = field("distil-overrides", 9)
    nproc: int = field("nproc", 10)
    jobs: int = field("jobs", 11)
    dask: str = field("dask", 12)
    ngrams: bool = field("ngrams", 13)

    def resolve(self, store: Store) -> DistilRequest:
        from flows.forms import checks
        from flows.forms.references import teacher_model
        from flows.papers.students.checks import DistilRequest

        checks.check_dask(self.dask)
        teacher = teacher_model(store, self.teacher)
        if teacher.stage == "imported":
            require(self.corpus, f"--teacher {self.teacher}: imported, from text that nobody knows; expected --corpus")
        elif self.corpus:
            raise InputError(f"--corpus: the teacher {teacher.short} was made from text of the store; expected none")
        checks.check_corpus(self.corpus)
        name, origin = inherited(self.preset, teacher, "the teacher")
        network = network_config(store.manifest(teacher)["config"]["model"])
        student = Chosen(self.student_preset(name, network, teacher.short), origin)
        datasets_url = checks.datasets_folder(store, self.datasets, self.tasks)
        checks.check_sources(student.preset, self.tasks, datasets_url)
        tasks = tuple(checks.chosen_tasks(self.tasks, datasets_url))
        return DistilRequest(store, teacher, student, datasets_url, tasks)

    def student_preset(self, name: str, teacher: NetworkConfig, short: str) -> Preset:
        """The preset that the form asks for: the student in its teacher's shape, with fewer layers.

        A decoder's student is of the decoder's family. What the settings say of the network stands.

        :param name: of the preset.
        :param short: what messages call the teacher.
        :raises InputError: an unknown setting, a value that does not fit, or a student that cannot learn from the
            teacher.
        """
        preset = preset_named(name, {**self.overrides, "family": self._family_of_student(teacher, short)})
        depth = self.layers or max(1, getattr(teacher, "n_layer", 2) // 2)
        size = self.overrides.get("shape")
        said = {**(shape_settings(size, "overrides")["model"] if size else {}), **self.overrides.get("model", {})}
        if self.layers and said.get("n_layer", self.layers) != self.layers:
            has = f"the settings have model.n_layer = {said['n_layer']}"
            raise InputError(f"--layers {self.layers}: {has}; expected one")
        shape = student_of(teacher, preset.model, said.get("n_layer", depth))
        model = replace_settings(shape, said, "overrides: model")
        check_teacher(preset.distil, model, teacher, f"--teacher {short}")
        return dataclasses.replace(preset, model=model)

    def _family_of_student(self, teacher: NetworkConfig, short: str) -> str:
        """The family of a teacher's student: a decoder's own, an encoder's as the form or its settings say.

        :raises InputError: the form or its settings say another one, or two.
        """
        said, own = self.overrides.get("family"), FAMILIES[teacher.family]
        unsaid = type(self).model_fields["family"].default
        if own.generates:
            is_one = f"a student of {own.title} ({short}) is one, too; expected none"
            require(said in (None, own.name), f"family = {said!r} in the settings: {is_one}")
            require(self.family in (own.name, unsaid), f"--family {self.family}: {is_one}")
            return own.name
        if said is not None and self.family not in (said, unsaid):
            raise InputError(f"family = {said!r} in the settings, --family {self.family}; expected one of the two")
        return str(said or self.family)
