"""The forms of students: a model that learns from a teacher, and analyses that compare several."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from flows.forms.fields import Form, InheritedPresetName, TaskChoice, field
from flows.forms.parameters import AnalysisParameters
from gptcore.families import students

if TYPE_CHECKING:
    from tasks.store.store import Store

StudentName = StrEnum("StudentName", {name: name for name in students()})  # type: ignore[misc]  # known at run time


class StudentsParameters(AnalysisParameters):
    """A teacher and its students, from the artifacts of a pipeline; what is missing is made."""

    preset: InheritedPresetName = field("students-preset", 0)  # type: ignore[assignment]  # a choice more

    def _look_up(self, store: Store) -> None:
        from flows.papers.students.checks import check_students

        check_students(store, self)
        self._look_up_text()

    def _look_up_text(self) -> None:
        """Those of the checks on books that a teacher of the store leaves."""
        from flows.forms import checks

        checks.check_corpus(self.corpus)
        checks.check_dask(self.dask)
        checks.check_tasks(self.tasks, self.datasets)


class DistillationParameters(StudentsParameters):
    """Students whose loss has one part less, from the artifacts of a pipeline; what is missing is made."""

    def _look_up(self, store: Store) -> None:
        from flows.papers.students.checks import check_distillation

        check_distillation(store, self)
        self._look_up_text()


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

    def _look_up(self, store: Store) -> None:
        from flows.forms.checks import check_dask
        from flows.papers.students.checks import check_distil

        check_dask(self.dask)
        check_distil(store, self)
