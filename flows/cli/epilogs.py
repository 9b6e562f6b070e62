"""What stands below the options in the help of a command: its input, examples."""

ROWS = """\
a row's fields are named as the dataset names its columns, or:
  cola sst2                    text
  snli mnli qnli rte scitail   premise, hypothesis    (qnli: its question is the premise)
  mrpc qqp stsb                text1, text2
  race                         document, question, answers (a list of 4)
  storycloze                   document, answers (a list of 2)
  squad squad2                 question, context
  swag                         document, answers (a list of 4)
  commonsenseqa                document, answers (a list of 5)
  conll2003                    words (a list)
  fewrel                       text (head NAME head ... tail NAME tail), or tokens, h, t as in FewRel
  openentity                   text (mention NAME mention), or mention_span and both contexts as in Open Entity
other fields are ignored
example: echo '{"premise": "A cat sat.", "hypothesis": "It sat."}' | gptmill predict rte --model best
"""

SERVE = """\
example: gptmill serve rte &
         curl -s 127.0.0.1:8080/predict -H 'Content-Type: application/json' \\
              -d '{"premise": "A cat sat.", "hypothesis": "It sat."}'
"""

DATASETS = """\
layouts: the public distributions' files, or parquet as the Hugging Face hub has it (pip install gptmill[hf] for hf://)
examples: gptmill datasets --datasets data
          gptmill datasets --datasets hf://datasets/nyu-mll/glue
          gptmill datasets get rte cola --to data
          gptmill datasets check ./my-task.toml
          gptmill datasets check squad --datasets data
"""
SWEEP = """\
FILE, for instance (more: infra/sweep-small.toml, gptcore/sweep/plan.py):
  preset = "small"
  objective = "validation/loss"    # or validation/bits_per_byte, or dev/score with tasks = ["rte", ...]
  trials = 9
  rungs = 3                        # 9 trials on 1/9 of the length, the best 3 on 1/3, the best 1 on the whole
  [space.pretrain]
  lr = { low = 5e-4, high = 5e-3, scale = "log" }
  batch_size = [8, 16, 32]
"""
CHECK = """\
Reads a task and prints what it holds, before anything is trained. TASK is a name, with the folder of datasets (squad
--datasets data), or the FILE of your own, for instance:
  name = "anli"                            # its column on the leaderboard
  format = "jsonl"                         # tsv, csv, jsonl, parquet
  form = "pair"                            # single, labels, pair, choices
  fields = ["premise", "hypothesis"]       # columns of the texts
  label = "label"
  train = "train.jsonl"                    # paths are relative to FILE
  dev = "dev.jsonl"                        # or holdout = 0.1
Optional: test, labels, metrics, choices, symmetric, score_range, columns, dropped_labels, holdout_seed, context, seeds,
note, folder, [prompt] with question, answers, context, and [finetune] with settings such as lr, epochs.
"""
GET = """\
Fetches datasets, goes on where an earlier call broke off, checks their SHA-256 and unpacks them under the names that
every other command reads. Licences are shown first: they are the authors', and yours to keep.
"""

KNOWLEDGE = """\
examples: gptmill knowledge                       # the generated world's
          gptmill knowledge data/FB15k-237 --entities "Albert Einstein,Paris"
          gptmill knowledge data/ConceptNet --columns relation,head,tail
files:    train.txt, valid.txt (or dev1.txt, dev2.txt), test.txt; one fact a line, tabs between its columns; what people
          call an entity: entity2wikidata.json, or labels.tsv with entity and label
"""

REASON = """\
examples: gptmill finetune commonsenseqa --checkpoint latest    # the model that reads the texts
          gptmill reason                                        # the generated world's graph and questions
          gptmill reason data/ConceptNet --columns relation,head,tail --datasets data --seeds 5
"""
