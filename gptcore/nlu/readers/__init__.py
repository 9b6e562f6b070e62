"""Readers of the twelve datasets: text files of the public distributions, or parquet files of the hub."""

from __future__ import annotations

from gptcore.nlu.examples import Annotation as Annotation
from gptcore.nlu.examples import Example as Example
from gptcore.nlu.examples import Record as Record
from gptcore.nlu.examples import example_of as example_of
from gptcore.nlu.examples import show as show
from gptcore.nlu.readers.layout import has_folder as has_folder
from gptcore.nlu.readers.layout import parquet_layout as parquet_layout
from gptcore.nlu.readers.tasks import available as available
from gptcore.nlu.readers.tasks import fitted as fitted
from gptcore.nlu.readers.tasks import has_test_rows as has_test_rows
from gptcore.nlu.readers.tasks import iterate as iterate
from gptcore.nlu.readers.tasks import iterate_test as iterate_test
from gptcore.nlu.readers.tasks import labelled_splits as labelled_splits
from gptcore.nlu.readers.tasks import load_task as load_task
from gptcore.nlu.readers.tasks import source_files as source_files
from gptcore.nlu.readers.text_files import csv_rows as csv_rows
from gptcore.nlu.readers.text_files import decoded_lines as decoded_lines
from gptcore.nlu.readers.text_files import lines as lines
from gptcore.nlu.readers.text_files import parse_object as parse_object
from gptcore.nlu.readers.text_files import rows_of as rows_of
from gptcore.nlu.readers.text_files import unreadable as unreadable
