"""Which folder installs as which package; everything else stands in pyproject.toml."""

from setuptools import setup

FOLDERS = {
    "evflow": "evflow",
    "evflow.codgen": "codgen",
    "evflow.gpu": "gpu",
    "evflow.stones": "stones",
    "pyspark_evflow": "stones/spark/pyspark_evflow",
}

setup(
    package_dir=FOLDERS,
    packages=[
        *FOLDERS,
        "evflow.cli",
        "evflow.codgen.llvm",
        "evflow.codgen.source",
        "evflow.demo",
        "evflow.deploy",
        "evflow.engine",
        "evflow.events",
        "evflow.events.columns",
        "evflow.flow",
        "evflow.link",
        "evflow.matching",
        "evflow.matching.columns",
        "evflow.matching.encoding",
        "evflow.matching.index",
        "evflow.matching.twophase",
        "evflow.node",
        "evflow.schema",
        "evflow.schema.logical",
        "evflow.stones.echo",
        "evflow.stones.matching",
        "evflow.stones.spark",
        "evflow.stones.spark.columns",
        "evflow.stones.spark.feeding",
        "evflow.stones.spark.format",
        "evflow.stones.spark.holding",
        "evflow.stones.spark.landing",
        "evflow.stones.spark.matching",
        "evflow.watch",
    ],
    package_data={"evflow": ["py.typed"], "evflow.gpu": ["kernels/*"]},
)
