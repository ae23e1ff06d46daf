"""The commands, by subject; `dataset_rt.cli.app` says which module has which."""
