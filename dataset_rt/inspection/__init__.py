"""Looking at caches and samples: what manifests say, numbers in short, bytes as text, pictures as pixels.

The command line and the report share it. Nothing here is imported by `import dataset_rt`.
"""
