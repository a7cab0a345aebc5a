"""Which folder installs as which package; everything else stands in pyproject.toml."""

from setuptools import setup

FOLDERS = {
    "evflow": "evflow",
    "evflow.codgen": "codgen",
    "evflow.gpu": "gpu",
    "evflow.stones": "stones",
    "pyspark_evflow": "evflow/spark/pyspark_evflow",
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
        "evflow.echo",
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
        "evflow.spark",
        "evflow.spark.columns",
        "evflow.spark.feeding",
        "evflow.spark.format",
        "evflow.spark.holding",
        "evflow.spark.landing",
        "evflow.spark.matching",
        "evflow.stones.matching",
        "evflow.watch",
    ],
    package_data={"evflow": ["py.typed"], "evflow.gpu": ["kernels/*"]},
)
