"""`python -m dataset_rt` is the command line `dataset-rt`."""

from dataset_rt.cli import main

if __name__ == "__main__":
    main()
