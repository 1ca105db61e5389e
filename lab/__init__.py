"""Shared code of benchmarks, experiments, the soak and the tests. It is not part of the wheel.

| package | contents |
|---|---|
| `joins` | random streams, the oracles that joins are compared with, and joins in all their configurations |
| `state` | plain Python twins of kernels, and invariants of the state's structures |
| `tws` | a processor's task without a JVM, its shards, and failing attempts at a task |
| `spark` | streams of files for a session, and the joins whose explanations are stored |
| `query` | queries, conditions and pipelines, valid and invalid; a query run by DuckDB and the engine |
| `golden` | writers of the states and checkpoints in `tests/golden` |
| `pages` | documents whose blocks are run |
| `dashboard` | events of runs, and the browser that shows them |
| `jars`, `hdfs` | packages of Maven for tests with other systems; a file system that is not the local one |
| `kafka` | a broker, its jars, and an auction house that writes to it: `./run kafka` |
| `lock` | the part of requirements.lock that the demo needs |
| `measure` | circumstances, medians, tables, charts and processes of a measurement |

Imports run one way: nothing here imports `tests`, `benchmarks`, `experiments` or `soak`.
"""

from pathlib import Path

#: The repository.
ROOT = Path(__file__).parent.parent
