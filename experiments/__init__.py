"""The figures and tables of the four papers, redrawn from runs of this engine, with their claims checked.

python -m experiments [ID …] [--quick] [--redraw] [--output FOLDER]
"""
