"""Writes generated workflows of all recipes of the package wfcommons, one line for each task:

    recipes.py SEED TASKS > tasks.tsv

Columns: recipe, position of the task in its workflow, seconds, bytes that it reads, bytes that it writes, positions of its parents. The parents of
a task may come after it. Same seed, same lines, with PYTHONHASHSEED=0.
"""
import random
import sys

import numpy
from wfcommons.wfchef import recipes

seed, count = int(sys.argv[1]), int(sys.argv[2])
for recipe in sorted(name for name in dir(recipes) if name.endswith("Recipe")):
    random.seed(seed)
    numpy.random.seed(seed)
    workflow = getattr(recipes, recipe).from_num_tasks(count).build_workflow(recipe)
    position = {name: index for index, name in enumerate(workflow.nodes)}
    for name, index in position.items():
        task = workflow.nodes[name]["task"]
        if task.cores not in (None, 1):
            sys.exit(f"{recipe}: the task {name} needs {task.cores} cores: the simulation has tasks of one core")
        read = sum(file.size for file in task.input_files)
        written = sum(file.size for file in task.output_files)
        parents = ",".join(str(position[parent]) for parent in workflow.predecessors(name))
        print(recipe.removesuffix("Recipe").lower(), index, task.runtime, read, written, parents, sep="\t")
